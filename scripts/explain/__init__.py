"""The topics of `vanilla explain`: one small module each."""
