"""`opcompat check`: scan, convert, verify and compare with a baseline, many models at once.

data.py      what a run yields: a Report for each model, issues, budgets, and a block for what varies
issues.py    Report -> Issues: everything in it that a reader may have to act on
one.py       one model, from its source to its result
baseline.py  what is compared with last time, as sorted JSON that people read in a diff
compare.py   a result against a baseline
explain.py   two baselines, and the likely cause
budgets.py   limits per metric
rules.py     select, ignore, suppress
runner.py    many models: a child process each, on this machine or on a Dask cluster
store.py     results on disk: a rerun resumes, reports are merged
"""
