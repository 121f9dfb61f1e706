r"""Plain NumPy twin of reweighted message passing, and of the value it maximises.

With counting numbers ``c_a``, ``c_i`` and ``chat_i = c_i + sum of c_a over the factors on i``,

    m_ai(y_i)  = c_a log sum_{y_a \ y_i} exp((th_a(y_a) + sum_{j != i} lam_aj(y_j)) / c_a)
    log tau_i  = (th_i + sum_a m_ai) / chat_i
    lam_ai     = c_a log tau_i - m_ai
    tau_a     ∝ exp((th_a + sum_i lam_ai) / c_a)

Messages and log-beliefs are kept with maximum 0.  Nothing here uses the package's kernels: tables
are broadcast, sums run in the log domain, sweeps are Python loops in the literal order.
"""

from __future__ import annotations

import numpy as np

from fieldfit.graph.potentials import Beliefs


class SumProductTwin:
    """The state of message passing on one model, updated one message at a time."""

    def __init__(self, graph, potentials, counting, observed=None):
        self.graph = graph
        self.scopes = [graph.scope(a) for a in range(graph.n_factors)]
        self.tables = [potentials.factor(a) for a in range(graph.n_factors)]
        self.weights = counting.factor
        self.totals = counting.variable_total
        self.unary = [potentials.unary(i).copy() for i in range(graph.n_variables)]
        for scope, table in zip(self.scopes, self.tables, strict=True):
            if len(scope) == 1:
                self.unary[scope[0]] += table
        for i, label in (observed or {}).items():
            self.unary[i][np.arange(len(self.unary[i])) != label] = -np.inf
        self.linking = [a for a, scope in enumerate(self.scopes) if len(scope) >= 2]
        self.messages = {
            (a, i): np.zeros(graph.cardinalities[i]) for a in self.linking for i in self.scopes[a]
        }
        self.log_beliefs = [self.log_belief(i) for i in range(graph.n_variables)]

    # -- the update -----------------------------------------------------------------------

    def log_belief(self, i):
        total = self.unary[i].copy()
        for a in self.linking:
            if i in self.scopes[a]:
                total = total + self.messages[a, i]
        return with_maximum_zero(total) / self.totals[i]

    def multiplier(self, a, i):
        """``lam_ai``; a label that the factor itself excludes stays excluded."""
        message = self.messages[a, i]
        possible = message > -np.inf
        return np.where(
            possible,
            self.weights[a] * self.log_beliefs[i] - np.where(possible, message, 0.0),
            -np.inf,
        )

    def exponent(self, a, left_out=None):
        """``(th_a + sum of lam_aj over j other than left_out) / c_a``, as a table."""
        scope = self.scopes[a]
        table = self.tables[a] / self.weights[a]
        for position, j in enumerate(scope):
            if j != left_out:
                shape = [1] * len(scope)
                shape[position] = -1
                table = table + self.multiplier(a, j).reshape(shape) / self.weights[a]
        return table

    def new_message(self, a, i):
        others = tuple(p for p, j in enumerate(self.scopes[a]) if j != i)
        return with_maximum_zero(self.weights[a] * log_sum_exp(self.exponent(a, i), others))

    def damped(self, a, i, damping):
        """What is written: labels that are or become impossible are not averaged."""
        new, old = self.new_message(a, i), self.messages[a, i]
        both = (new > -np.inf) & (old > -np.inf)
        mixed = new.copy()
        mixed[both] = (1.0 - damping) * new[both] + damping * old[both]
        return mixed

    # -- sweeps ---------------------------------------------------------------------------

    def flooding_sweep(self, damping=0.0):
        """All messages from the old state, then all beliefs; the largest undamped change."""
        change = max((self.change(a, i) for a, i in self.messages), default=0.0)
        self.messages = {(a, i): self.damped(a, i, damping) for a, i in self.messages}
        self.log_beliefs = [self.log_belief(i) for i in range(self.graph.n_variables)]
        return change

    def sequential_sweep(self, order, damping=0.0):
        """One variable after the other: all messages into it, then its belief."""
        change = 0.0
        for i in order:
            around = [a for a in self.linking if i in self.scopes[a]]
            change = max([change, *(self.change(a, i) for a in around)])
            new = {(a, i): self.damped(a, i, damping) for a in around}
            self.messages.update(new)
            self.log_beliefs[i] = self.log_belief(i)
        return change

    def slot_sweep(self, slots, damping=0.0):
        """One message after the other, each followed by the belief of its variable."""
        for slot in slots:
            a, i = int(self.graph.slot_factors[slot]), int(self.graph.slot_variables[slot])
            self.messages[a, i] = self.damped(a, i, damping)
            self.log_beliefs[i] = self.log_belief(i)

    def change(self, a, i):
        new, old = self.new_message(a, i), self.messages[a, i]
        moved = new != old
        return float(np.abs(new[moved] - old[moved]).max(initial=0.0))

    def solve(self, order=None, damping=0.0, tol=1e-12, max_sweeps=5000):
        """Sequential sweeps to a fixed point; fails loudly if there is none in sight.

        Messages of size s go on changing by a few ulps of s, which no tolerance may forbid.
        """
        order = range(self.graph.n_variables) if order is None else order
        for _ in range(max_sweeps):
            change = self.sequential_sweep(order, damping)
            values = np.concatenate([np.zeros(1), *self.messages.values()])
            size = np.abs(values[np.isfinite(values)]).max()
            if change <= max(tol, 16 * np.finfo(float).eps * size):
                return self
        raise AssertionError(f"the twin did not converge in {max_sweeps} sweeps")

    # -- what comes out -------------------------------------------------------------------

    def flat_messages(self):
        """Messages in the package's layout; factors of arity one have none and stay at zero."""
        flat = np.zeros(self.graph.message_offsets[-1])
        for slot in range(self.graph.n_slots):
            key = int(self.graph.slot_factors[slot]), int(self.graph.slot_variables[slot])
            if key in self.messages:
                begin, end = self.graph.message_offsets[slot : slot + 2]
                flat[begin:end] = self.messages[key]
        return flat

    def beliefs(self):
        unary = [softmax(values) for values in self.log_beliefs]
        factors = []
        for a, scope in enumerate(self.scopes):
            if len(scope) == 0:
                factors.append(np.ones(()))
            elif len(scope) == 1:
                factors.append(unary[scope[0]])
            else:
                factors.append(softmax(self.exponent(a)))
        return Beliefs(self.graph, flat(unary), flat(factors))


def primal_value(graph, potentials, counting, beliefs):
    """``<th, tau> + sum_a c_a H(tau_a) + sum_i c_i H(tau_i)``, with ``0 * -inf = 0``."""
    total = 0.0
    for i in range(graph.n_variables):
        total += expectation(potentials.unary(i), beliefs.unary(i))
        total += counting.variable[i] * entropy(beliefs.unary(i))
    for a in range(graph.n_factors):
        total += expectation(potentials.factor(a), beliefs.factor(a))
        if len(graph.scope(a)) >= 2:
            total += counting.factor[a] * entropy(beliefs.factor(a))
    return float(total)


# -- arithmetic ---------------------------------------------------------------------------


def log_sum_exp(values, axes):
    top = values.max(axis=axes, keepdims=True)
    shift = np.where(top > -np.inf, top, 0.0)
    total = np.exp(values - shift).sum(axis=axes)
    with np.errstate(divide="ignore"):
        return np.log(total) + np.squeeze(shift, axis=axes)


def with_maximum_zero(values):
    return values - values.max()


def softmax(values):
    weights = np.exp(values - values.max())
    return weights / weights.sum()


def entropy(belief):
    used = belief > 0
    return -float(np.sum(belief[used] * np.log(belief[used])))


def expectation(potential, belief):
    used = belief > 0
    return float(np.sum(potential[used] * belief[used]))


def flat(tables):
    return np.concatenate([np.zeros(0), *(np.ravel(table) for table in tables)])
