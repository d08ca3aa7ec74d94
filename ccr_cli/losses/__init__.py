"""Losses: pure functions, tensors in, a tensor out.

What holds unless a function says otherwise:

- B are the pairs of a batch, rows visual items, columns texts, each pair's own entry on the diagonal; K are the
  candidates of a row, D the dimension of an embedding.
- `mask_BB` is True where an entry takes part, None where all do (`losses.masks`). A row left with its diagonal alone is
  dropped; where none is left the loss is 0, with a graph.
- `weight_B` >= 0 are weights of the pairs, by default equal, without gradient; a common factor changes no mean. A pair
  of weight exactly 0 is neither positive nor negative: the loss is that of the batch without it.
- Everything is computed and returned in float32 or better, whatever the autocast dtype (`losses.precision`).
- Arguments that do not fit, such as shapes of different batches, raise ValueError.
"""
