"""Trainable modules: text encoders, projection heads and the dual encoder made of them."""
