"""Planar Ising models without field, solved exactly.

    s(y) = constant + sum_e J_e s_i s_j,    s = +-1

``planar_ising`` has ground states (a perfect matching of frustrated faces) and the log-partition
(the Kasteleyn-Fisher Pfaffian).
"""
