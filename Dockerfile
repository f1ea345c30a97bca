# The server with a model inside, on the CPU, without torch:
#
#     docker build -t translate .                                              # the bundled model
#     docker build -t translate --build-arg MODEL=runs/mine/model .            # a folder of this checkout
#     docker run -p 8000:8000 --read-only translate
FROM python:3.13-slim
ARG MODEL=model_cards/multi30k-en-de-tiny
RUN useradd --create-home --uid 1000 user
WORKDIR /home/user
COPY constraints.txt .
RUN pip install --no-cache-dir --constraint constraints.txt \
    tokenizers safetensors ctranslate2 sentencex \
    starlette pydantic uvicorn prometheus-client python-multipart turbohtml
COPY pyproject.toml README.md LICENSE package/
COPY vanilla_transformer package/vanilla_transformer
COPY training package/training
COPY scripts package/scripts
COPY model_cards package/model_cards
RUN pip install --no-cache-dir --no-deps ./package && rm -r package
COPY --chown=user ${MODEL} translation/model
USER user
ENV HF_HUB_OFFLINE=1
# Converts the model, so that the server starts at once and writes nothing.
RUN echo "A first sentence." | vanilla translate --model translation/model --backend ctranslate2
EXPOSE 8000
HEALTHCHECK CMD python -c "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=5)"
CMD ["vanilla", "serve", "--model", "translation/model", "--host", "0.0.0.0", "--port", "8000"]
