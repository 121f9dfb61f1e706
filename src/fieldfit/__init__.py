"""Learning Markov and conditional random fields whose exact inference is out of reach."""
