"""Numbers of the training: bfloat16 by itself where the hardware computes it."""

import torch


def computes_bfloat16(device_type: str) -> bool:
    """Returns whether a device multiplies matrices in bfloat16. Others emulate it, slower than float32."""
    if device_type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    device = torch.get_device_module(device_type)
    return hasattr(device, "is_bf16_supported") and device.is_bf16_supported(including_emulation=False)
