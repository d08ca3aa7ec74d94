"""Parts of `benchmarks/noise_robustness.py`: the collection, the grid, the runs, tables and figure."""
