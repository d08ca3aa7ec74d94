"""Reading of data sets, features and videos; splits, synthetic noise, tokens and files of pairs."""
