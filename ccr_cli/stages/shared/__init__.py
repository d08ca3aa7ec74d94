"""What several commands need: inputs, triplets, scores, options, workers."""
