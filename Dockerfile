# The server on the CPU, without torch, with the bundled translator inside:
#
#     docker build -t translate .
#     docker run -p 8000:8000 --read-only translate
#
# Options of `vanilla serve` follow the name of the image, for example for a model of yours:
#
#     docker run -p 8000:8000 -v "$PWD/runs/mine/model:/model:ro" translate --model /model
FROM python:3.13-slim
RUN useradd --create-home --uid 1000 user
WORKDIR /home/user
COPY constraints.txt .
RUN pip install --no-cache-dir --constraint constraints.txt \
    tokenizers safetensors ctranslate2 sentencex eld \
    starlette pydantic uvicorn prometheus-client python-multipart turbohtml
COPY pyproject.toml README.md LICENSE package/
COPY vanilla_transformer package/vanilla_transformer
COPY training package/training
COPY scripts package/scripts
COPY model_cards package/model_cards
RUN pip install --no-cache-dir --no-deps ./package && rm -r package
USER user
ENV HF_HUB_OFFLINE=1
# Converts the models, so that the server starts at once and writes nothing.
RUN echo "A first sentence." | vanilla translate --backend ctranslate2 && \
    echo "A first sentence." | vanilla translate --backend ctranslate2 --target_lang en
EXPOSE 8000
HEALTHCHECK CMD python -c "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=5)"
ENTRYPOINT ["vanilla", "serve", "--host", "0.0.0.0", "--port", "8000"]
