"""`vanilla-benchmark`: one module for each question, and the peers that the models are compared with."""
