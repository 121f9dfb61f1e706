"""Frank-Wolfe (conditional gradient): marginals from MAP searches alone, with a certified gap.

    max over tau of <th, tau> + H_c(tau),    gap = max over s of <th + grad H_c(tau), s - tau>

``active_set`` holds atoms and their weights, and the pairwise steps between them; ``frank_wolfe``
is the loop with an oracle, and the inference.  `fieldfit.learners.dual_frank_wolfe` learns with the
same parts.
"""
