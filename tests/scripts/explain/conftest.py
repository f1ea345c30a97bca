"""Topics in their reduced form. All tests share the folder of trained models."""

import pytest

from vanilla_transformer.scripts.explain.explanation import ExplainArguments


@pytest.fixture(scope="session")
def quick(tmp_path_factory) -> ExplainArguments:
    folder = tmp_path_factory.mktemp("explain")
    return ExplainArguments(output_dir=str(folder / "pictures"), runs_dir=str(folder / "trainings"), quick=True)
