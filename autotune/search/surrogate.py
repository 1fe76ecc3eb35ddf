"""A Gaussian process on the logarithm of the time: what is expected of a configuration, and how sure that is.

Rasmussen and Williams, "Gaussian Processes for Machine Learning", chapters 2 and 5. Written on NumPy, because a fit to a few hundred points
takes milliseconds and no library that offers one is as light as NumPy.
"""

from dataclasses import dataclass

import numpy as np

from autotune.search.space import Floats, Indices

JITTER = 1e-8


@dataclass(frozen=True)
class Hyperparameters:
    """Of a fit: the logarithms of one inverse length per parameter, of the signal's and of the noise's standard deviation."""

    inverse_lengths: Floats
    signal: float
    noise: float


def kernel(a: Floats, b: Floats) -> Floats:
    """The Matérn 5/2 correlation between rows of `a` and `b`, already divided by their lengths: shape (len(a), len(b))."""
    square = np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2.0 * a @ b.T, 0.0)
    distance = np.sqrt(5.0 * square)
    correlation: Floats = (1.0 + distance + distance * distance / 3.0) * np.exp(-distance)
    return correlation


class GaussianProcess:
    """Fitted to `targets` at the rows of `features`; `groups` names, per column, the parameter that it belongs to.

    Shapes: features (points, columns), targets (points,), groups (columns,).
    """

    def __init__(self, features: Floats, targets: Floats, groups: Indices, start: Hyperparameters | None = None, steps: int = 30) -> None:
        self._groups = groups
        self._features = features
        self._mean = float(targets.mean())
        self._scale = float(targets.std()) or 1.0
        self._targets = (targets - self._mean) / self._scale
        self.hyperparameters = _fit(features, self._targets, groups, start or prior_mode(groups), steps)
        self._scaled = features * np.exp(self.hyperparameters.inverse_lengths)[groups]
        signal, noise = np.exp(2 * self.hyperparameters.signal), np.exp(2 * self.hyperparameters.noise)
        covariance = signal * kernel(self._scaled, self._scaled) + (noise + JITTER) * np.eye(len(features))
        self._inverse = np.linalg.inv(np.linalg.cholesky(covariance))
        self._weights = self._inverse.T @ (self._inverse @ self._targets)

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the target at each row of `features`, without the noise of a measurement."""
        signal = np.exp(2 * self.hyperparameters.signal)
        scaled = features * np.exp(self.hyperparameters.inverse_lengths)[self._groups]
        cross = signal * kernel(scaled, self._scaled)
        mean = cross @ self._weights
        explained = ((cross @ self._inverse.T) ** 2).sum(1)
        deviation = np.sqrt(np.maximum(signal - explained, 1e-12))
        return mean * self._scale + self._mean, deviation * self._scale


def prior_mode(groups: Indices) -> Hyperparameters:
    """Where a fit starts: every parameter matters moderately and measurements are nearly exact."""
    return Hyperparameters(np.full(int(groups.max()) + 1, _PRIOR_MEAN[0]), _PRIOR_MEAN[1], _PRIOR_MEAN[2])


_PRIOR_MEAN = np.array([0.0, 0.0, -3.0])
_PRIOR_DEVIATION = np.array([1.0, 0.5, 1.0])


def _fit(features: Floats, targets: Floats, groups: Indices, start: Hyperparameters, steps: int) -> Hyperparameters:
    """Maximum a posteriori by Rprop (Riedmiller and Braun 1993), which needs no line search and no scale."""
    count = len(start.inverse_lengths)
    theta = np.concatenate([start.inverse_lengths, [start.signal, start.noise]])
    centre = np.concatenate([np.full(count, _PRIOR_MEAN[0]), _PRIOR_MEAN[1:]])
    width = np.concatenate([np.full(count, _PRIOR_DEVIATION[0]), _PRIOR_DEVIATION[1:]])
    squares = np.stack([_squares(features[:, groups == group]) for group in range(count)])
    step, last, best = np.full(len(theta), 0.2), np.zeros(len(theta)), (np.inf, theta)
    for _ in range(steps):
        loss, gradient = _loss(theta, squares, targets)
        loss += 0.5 * float((((theta - centre) / width) ** 2).sum())
        gradient = gradient + (theta - centre) / width**2
        if loss < best[0]:
            best = (loss, theta.copy())
        agreement = np.sign(gradient * last)
        step = np.clip(step * np.where(agreement > 0, 1.2, np.where(agreement < 0, 0.5, 1.0)), 1e-3, 0.5)
        last = np.where(agreement < 0, 0.0, gradient)
        theta = np.clip(theta - np.sign(last) * step, -7.0, 5.0)
    return Hyperparameters(best[1][:count], float(best[1][count]), float(best[1][count + 1]))


def _squares(columns: Floats) -> Floats:
    return np.asarray(((columns[:, None, :] - columns[None, :, :]) ** 2).sum(2), dtype=np.float64)


def _loss(theta: Floats, squares: Floats, targets: Floats) -> tuple[float, Floats]:
    """The negative log marginal likelihood and its gradient (Rasmussen and Williams, equations 5.8 and 5.9)."""
    weights, signal, noise = np.exp(2 * theta[:-2]), np.exp(2 * theta[-2]), np.exp(2 * theta[-1])
    distance = np.sqrt(5.0 * np.tensordot(weights, squares, 1))
    decay = np.exp(-distance)
    correlation = (1.0 + distance + distance * distance / 3.0) * decay
    covariance = signal * correlation + (noise + JITTER) * np.eye(len(targets))
    inverse_factor = np.linalg.inv(np.linalg.cholesky(covariance))
    inverse = inverse_factor.T @ inverse_factor
    alpha = inverse @ targets
    loss = 0.5 * float(targets @ alpha) - float(np.log(np.diag(inverse_factor)).sum())
    sensitivity = 0.5 * (inverse - np.outer(alpha, alpha))
    # d correlation / d log inverse length = -(5/3) (1 + distance) exp(-distance) weight * square
    slope = sensitivity * (-(5.0 / 3.0) * signal * (1.0 + distance) * decay)
    lengths = weights * np.einsum("ij,kij->k", slope, squares)
    return loss, np.concatenate(
        [lengths, [2 * signal * float((sensitivity * correlation).sum()), 2 * noise * float(np.trace(sensitivity))]]
    )
