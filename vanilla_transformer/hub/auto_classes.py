"""Registers this package's models with transformers, without importing transformers.

Importing the library's models takes seconds, of which a program that imports this package may need none. So each
registration waits until the module that it concerns has been imported: by a program that uses the library's auto
classes or pipelines, or one that uses this package's model.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from vanilla_transformer.models.variants import MODELS, load


PACKAGE = "vanilla_transformer"
ROOM = f"{PACKAGE}.models"


def register() -> None:
    """Registers now what concerns imported modules, and the rest when they are imported."""
    for name, action in ACTIONS.items():
        if name in sys.modules:
            action()
        else:
            after_import(name, action)


def after_import(name: str, action: Callable[[], Any]) -> None:
    """Runs an action when a module that is not imported yet has been imported."""
    _AFTER_IMPORT.actions[name] = action
    if _AFTER_IMPORT not in sys.meta_path:
        sys.meta_path.insert(0, _AFTER_IMPORT)


# --- what is registered ---


def _register_configs() -> None:
    """Lets `AutoConfig` find the config classes, which are imported when they are looked up."""
    mapping = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    mapping._extra_content = _LazyConfigs(mapping._extra_content)


def _register_models(model_type: str) -> None:
    """Lets the auto classes find the models of a config."""
    auto_classes = import_module("transformers.models.auto.modeling_auto")
    config_class, *models = (load(place) for place in MODELS[model_type].values())
    for auto_class, model in zip(list(MODELS[model_type])[1:], models, strict=True):
        getattr(auto_classes, auto_class).register(config_class, model, exist_ok=True)


def _register_adapters() -> None:
    """Lets PEFT adapt the models without `target_modules`."""
    mapping = import_module("peft.utils.constants").TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    for model_type, modules in import_module(f"{PACKAGE}.hub.adapters").TARGET_MODULES.items():
        mapping.setdefault(model_type, modules)


def _import(name: str) -> None:
    """Imports a module of this package, whose own action follows. If it is just being imported, this does nothing."""
    import_module(f"{PACKAGE}.{name}")


def _register_pipeline() -> None:
    """Lets `pipeline("vanilla-translation")` find its class."""
    import_module("transformers.pipelines").PIPELINE_REGISTRY.register_pipeline(
        "vanilla-translation",
        pipeline_class=import_module(f"{PACKAGE}.translation.hf_pipeline").TranslationPipeline,
        pt_model=import_module("transformers.models.auto.modeling_auto").AutoModelForSeq2SeqLM,
        type="text",
    )


def _use_cpu_room() -> None:
    """Makes searches faster on a CPU, if the room that does it is there."""
    if find_spec(f"{PACKAGE}.cpu") is not None:
        import_module(f"{PACKAGE}.cpu").use_packed_steps()


# What to do after the import of a module.
ACTIONS: dict[str, Callable[[], None]] = {
    "transformers.models.auto.configuration_auto": _register_configs,
    "transformers.pipelines": partial(_import, "translation.hf_pipeline"),
    f"{PACKAGE}.translation.hf_pipeline": _register_pipeline,
    "peft.utils.constants": _register_adapters,
    f"{ROOM}.decoder_steps": _use_cpu_room,
    # The auto classes may be given a config directly, so the models follow it.
    **{
        f"{ROOM}.configuration_{model_type}": partial(_import, f"models.modeling_{model_type}")
        for model_type in MODELS
    },
    **{f"{ROOM}.modeling_{model_type}": partial(_register_models, model_type) for model_type in MODELS},
}


class _LazyConfigs(dict):
    """The library's table of registered configs, in which this package's are imported at their first use."""

    def __init__(self, content: dict[str, Any]):
        super().__init__({**dict.fromkeys(MODELS), **content})

    def __getitem__(self, key: str) -> Any:
        if super().__getitem__(key) is None:
            self[key] = load(MODELS[key]["AutoConfig"])
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[str]:  # without it, dict(self) would copy the empty entries
        return super().__iter__()

    def values(self) -> Any:
        return [self[key] for key in self]

    def items(self) -> Any:
        return [(key, self[key]) for key in self]


# --- waiting for an import ---


class _AfterImport(MetaPathFinder):
    """Runs an action after a module has been imported for the first time."""

    def __init__(self) -> None:
        self.actions: dict[str, Callable[[], None]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.actions:
            return None
        action = self.actions.pop(fullname)  # so that the other finders answer now
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _LoaderWithAction(spec.loader, action)
        return spec


class _LoaderWithAction(Loader):
    def __init__(self, loader: Loader, action: Callable[[], None]):
        self.loader, self.action = loader, action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader  # the module looks as if it had been imported plainly
        self.loader.exec_module(module)
        self.action()


_AFTER_IMPORT = _AfterImport()
