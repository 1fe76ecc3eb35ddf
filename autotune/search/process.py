"""A Gaussian process: what is expected of a configuration, and how sure that is, where configurations that are alike take alike times.

Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), chapters 2 and 5. Written on NumPy, because a fit to a few hundred
points takes milliseconds and no library that offers one is as light as NumPy.
"""

import numpy as np

from autotune.search.space import Floats, Indices

JITTER = 1e-8
ADDITIVE = 0.4  # share of the variance that is a sum of effects of single parameters
MODE = (0.0, 0.0, -3.0)  # of the logarithms of an inverse length, of the signal and of the noise, a priori
WIDTH = (1.0, 0.5, 1.0)
LEAST, MOST = -7.0, 5.0


class GaussianProcess:
    """What a point learns from those that were measured, over a pool of points that is asked about again and again.

    The kernel is Matérn 5/2 over `features` with one length per group of columns, plus for each parameter whose code agrees an equal share
    of the additive variance. `theta` holds the logarithms of the inverse lengths, the signal and the noise. One more measurement or one
    more point in the pool costs a row or a column, not a new factorisation, as long as `theta` stays.
    Shapes: features (points, columns), codes (points, parameters), groups (columns,), targets (points,), theta (groups + 2,).
    """

    def __init__(self, groups: Indices) -> None:
        self._groups = groups
        self.theta: Floats = np.concatenate([np.full(int(groups.max()) + 1, MODE[0]), MODE[1:]])

    def fit(self, features: Floats, codes: Indices, targets: Floats, steps: int) -> None:
        """Moves `theta` towards the most likely a posteriori, given `targets` of mean 0 and variance 1."""
        squares = np.stack([_squares(features[:, self._groups == group]) for group in range(int(self._groups.max()) + 1)])
        self.theta = _fit(self.theta, squares, _agreement(codes, codes), targets, steps)

    def condition(self, features: Floats, codes: Indices) -> None:
        """Starts anew from measurements at these points, with an empty pool."""
        self._scaled, self._codes = self._scale(features), codes
        covariance = self._covariance(self._scaled, codes, self._scaled, codes) + _noise(self.theta) * np.eye(len(codes))
        self._inverse = np.linalg.inv(np.linalg.cholesky(covariance))
        self._pool, self._pool_codes = self._scaled[:0], codes[:0]
        self._whitened, self._explained = np.empty((len(codes), 0)), np.empty(0)

    def add(self, features: Floats, codes: Indices) -> None:
        """Takes in measurements at these further points."""
        for point, code in zip(self._scale(features)[:, None], codes[:, None], strict=True):
            known = self._inverse @ self._covariance(self._scaled, self._codes, point, code)[:, 0]
            rest = float(np.sqrt(max(np.exp(2 * self.theta[-2]) + _noise(self.theta) - known @ known, JITTER)))
            whitened = (self._covariance(point, code, self._pool, self._pool_codes)[0] - known @ self._whitened) / rest
            row = np.append(-(known @ self._inverse), 1.0) / rest
            self._inverse = np.vstack([np.pad(self._inverse, ((0, 0), (0, 1))), row])
            self._whitened, self._explained = np.vstack([self._whitened, whitened]), self._explained + whitened**2
            self._scaled, self._codes = np.vstack([self._scaled, point]), np.vstack([self._codes, code])

    def widen(self, features: Floats, codes: Indices) -> None:
        """Adds points to the pool."""
        scaled = self._scale(features)
        whitened = self._inverse @ self._covariance(self._scaled, self._codes, scaled, codes)
        self._whitened, self._explained = np.hstack([self._whitened, whitened]), np.append(self._explained, (whitened**2).sum(0))
        self._pool, self._pool_codes = np.vstack([self._pool, scaled]), np.vstack([self._pool_codes, codes])

    def predict(self, targets: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the target at each point of the pool, without the noise of a measurement."""
        variance = np.exp(2 * self.theta[-2]) - self._explained
        return (self._inverse @ targets) @ self._whitened, np.sqrt(np.maximum(variance, 1e-12))

    def likeness(self, features: Floats, to: Floats) -> Floats:
        """How much the rows of `features` are like those of `to`, 0 … 1, by the smooth part of the kernel."""
        return _matern(_distances(self._scale(features), self._scale(to)))

    def _scale(self, features: Floats) -> Floats:
        return np.asarray(features * np.exp(self.theta[:-2])[self._groups])

    def _covariance(self, a: Floats, a_codes: Indices, b: Floats, b_codes: Indices) -> Floats:
        signal = np.exp(2 * self.theta[-2])
        return np.asarray(signal * ((1 - ADDITIVE) * _matern(_distances(a, b)) + ADDITIVE * _agreement(a_codes, b_codes)))


def _distances(a: Floats, b: Floats) -> Floats:
    square = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2.0 * a @ b.T
    return np.asarray(np.sqrt(5.0 * np.maximum(square, 0.0)))


def _matern(distance: Floats) -> Floats:
    return np.asarray((1.0 + distance + distance * distance / 3.0) * np.exp(-distance))


def _agreement(a: Indices, b: Indices) -> Floats:
    """The share of parameters in which rows of `a` and `b` agree."""
    if not a.shape[1]:
        return np.ones((len(a), len(b)))
    same = np.zeros((len(a), len(b)))
    for parameter in range(a.shape[1]):
        same += a[:, parameter, None] == b[None, :, parameter]
    return np.asarray(same / a.shape[1])


def _squares(columns: Floats) -> Floats:
    return np.asarray(((columns[:, None, :] - columns[None, :, :]) ** 2).sum(2))


def _noise(theta: Floats) -> float:
    return float(np.exp(2 * theta[-1])) + JITTER


def _fit(start: Floats, squares: Floats, agreement: Floats, targets: Floats, steps: int) -> Floats:
    """Maximum a posteriori by Rprop (Riedmiller and Braun 1993), which needs neither a line search nor a step size."""
    lengths = len(start) - 2
    centre = np.concatenate([np.full(lengths, MODE[0]), MODE[1:]])
    width = np.concatenate([np.full(lengths, WIDTH[0]), WIDTH[1:]])
    theta, best, least = start, start, np.inf
    step, last = np.full(len(start), 0.2), np.zeros(len(start))
    for _ in range(steps):
        loss, gradient = _loss(theta, squares, agreement, targets)
        loss += 0.5 * float((((theta - centre) / width) ** 2).sum())
        gradient = gradient + (theta - centre) / width**2
        if loss < least:
            best, least = theta, loss
        turn = gradient * last
        step = np.clip(step * np.where(turn > 0, 1.2, np.where(turn < 0, 0.5, 1.0)), 1e-3, 0.5)
        last = np.where(turn < 0, 0.0, gradient)
        theta = np.clip(theta - np.sign(last) * step, LEAST, MOST)
    return best


def _loss(theta: Floats, squares: Floats, agreement: Floats, targets: Floats) -> tuple[float, Floats]:
    """The negative log marginal likelihood and its gradient (Rasmussen and Williams, equations 5.8 and 5.9)."""
    weights, signal = np.exp(2 * theta[:-2]), np.exp(2 * theta[-2])
    distance = np.sqrt(5.0 * np.tensordot(weights, squares, 1))
    correlation = (1 - ADDITIVE) * _matern(distance) + ADDITIVE * agreement
    factor = np.linalg.inv(np.linalg.cholesky(signal * correlation + _noise(theta) * np.eye(len(targets))))
    inverse = factor.T @ factor
    alpha = inverse @ targets
    loss = 0.5 * float(targets @ alpha) - float(np.log(np.diag(factor)).sum())
    sensitivity = 0.5 * (inverse - np.outer(alpha, alpha))
    # d Matérn / d log inverse length = -(5/3) (1 + distance) exp(-distance) weight square
    slope = sensitivity * (-(5.0 / 3.0) * signal * (1 - ADDITIVE) * (1.0 + distance) * np.exp(-distance))
    to_lengths = weights * (squares.reshape(len(squares), -1) @ slope.ravel())
    to_signal = 2 * signal * float((sensitivity * correlation).sum())
    to_noise = 2 * float(np.exp(2 * theta[-1])) * float(np.trace(sensitivity))
    return loss, np.concatenate([to_lengths, [to_signal, to_noise]])
