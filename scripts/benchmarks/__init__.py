"""`vanilla benchmark`: one module for each question, and the systems that the model is compared with."""
