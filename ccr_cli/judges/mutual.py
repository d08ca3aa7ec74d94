"""The pair is the best of its row and of its column in the batch (DisNCL).

Dang et al., "Disentangled Noisy Correspondence Learning", eq. (2). A pair is called noisy only if a rival is strictly
better.
"""

from functools import partial

from ccr_cli.judges import rank
from ccr_cli.judges.base import BatchJudge

clean_probability = partial(rank.clean_probability, share=0.0)
JUDGE = BatchJudge(clean_probability)
