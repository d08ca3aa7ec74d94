"""Losses: pure functions, tensors in, a tensor out.

Unless a function says otherwise:

- B is the number of pairs in a batch: rows are visual items, columns are texts, and the pairs lie on the diagonal. K is
  the number of candidates of a row, D the dimension of an embedding.
- `mask_BB` is True for entries that take part; None means all of them (`losses.masks`). A row with only its diagonal
  left is dropped; if no row is left, the loss is 0, with a graph.
- `weight_B` >= 0 weights the pairs (equally by default) and gets no gradient; a common factor changes no mean. A pair
  of weight exactly 0 is neither positive nor negative: the loss equals that of the batch without it.
- Everything is computed and returned in float32 or better, whatever the autocast dtype (`losses.precision`).
- Arguments that do not fit, such as shapes of different batches, raise ValueError.
"""
