"""Our choice of the next configuration as an Optuna sampler, so that an Optuna study holds the search."""

from collections.abc import Callable
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial

from autotune.search.space import Space, parameters


class EnumeratedSampler(optuna.samplers.BaseSampler):
    """Gives each trial one configuration of an enumerated set: the one that `choose` returns, as an index into `space`.

    Optuna's own samplers draw every parameter by itself: on such a set two to five draws of theirs make one that is valid and new.
    """

    def __init__(self, space: Space, choose: Callable[[], int]) -> None:
        self.chosen: dict[int, int] = {}
        self.distributions: dict[str, BaseDistribution] = {name: CategoricalDistribution(values) for name, values in space.values.items()}
        self._space = space
        self._choose = choose

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self.chosen[trial.number] = self._choose()

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.distributions

    def sample_relative(self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        return parameters(self._space.configurations[self.chosen[trial.number]])

    def sample_independent(self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution) -> Any:
        return parameters(self._space.configurations[self.chosen[trial.number]])[param_name]
