"""A translation server: an HTTP API that speaks LibreTranslate's language, and a web page.

Its parts need the extra `serve`: `pip install "vanilla-transformer[serve]"`. `vanilla serve` puts them together.
"""
