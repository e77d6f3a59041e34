"""Where an artifact first differs from JAX: its own file with inner values exposed, and the search among them."""
