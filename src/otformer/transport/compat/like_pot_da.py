r"""Domain adaptation by transport, an estimator in scikit-learn's manner, with POT's names (``ot.da``).

P is the plan between a labelled source sample Xs and a target sample Xt. `DomainAdapter` sends source points to the target,

    T(x_i) = Σ_j P_ij y_j / Σ_j P_ij,

so that a classifier trained on T(Xs) with the labels of Xs fits the target [1]. A new x goes either

- ``"ferradans"`` with its nearest x_i of the source:  T(x) = T(x_i) + x − x_i  [2]; or
- ``"continuous"`` where the potentials send it:  T(x) = Σ_j softmax_j((v_j − c(x, y_j))/λ) y_j  [3], of an exact plan the
  y_j of least c(x, y_j) − g_j  (transport/result/new_points.py).

``reg_e=0`` is POT's ``EMDTransport``, ``reg_e > 0`` its ``SinkhornTransport``.

scikit-learn is not needed: the class has the methods by which `clone`, pipelines and searches know an estimator.

[1] N. Courty, R. Flamary, D. Tuia, A. Rakotomamonjy: Optimal transport for domain adaptation, 2017.
[2] S. Ferradans, N. Papadakis, G. Peyré, J.-F. Aujol: Regularized discrete optimal transport, 2014.
[3] A.-A. Pooladian, J. Niles-Weed: Entropic estimation of optimal transport maps, 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from scipy.spatial.distance import cdist

from otformer import checks, weight_checks
from otformer.memory import needs
from otformer.transport.compat.estimator import Estimator, read_classes, read_sample
from otformer.transport.needs import of_points
from otformer.transport.result.known_points import KnownPoints
from otformer.transport.result.new_points import transported
from otformer.transport.result.result import Result
from otformer.transport.solve import solve, solve_sample

Array = np.ndarray
METRICS = ("sqeuclidean", "euclidean", "cosine")
MAPS = ("auto", "ferradans", "continuous")
UNLABELLED = -1  # POT's and scikit-learn's mark of a point without a label
DISTANCES_AT_ONCE = 2**22  # distances that are held at once


class DomainAdapter(Estimator):
    """Transport from a source to a target sample, with ``fit`` and ``transform``; POT's names.

    Parameters
    ----------
    reg_e : float
        λ, in the units of the cost (after ``norm``); 0 is exact.
    metric : str
        ``"sqeuclidean"``, ``"euclidean"`` or ``"cosine"``.
    norm : str, optional
        ``"max"`` or ``"median"``: costs are divided by their maximum or median.
    distribution_estimation : function, optional
        Weights (n,) of a sample (n, d); by default uniform.
    out_of_sample_map : str
        How new points are mapped, see above: ``"ferradans"``, ``"continuous"``, or ``"auto"``: as in POT, the first for an
        exact plan and the second for an entropic one. If labels forbid pairs it is the first: potentials ignore labels.
    limit_max : float
        The cost between two classes if source and target points have labels, in units of the largest cost; inf forbids.
    tol, max_iter
        As in `solve`: the marginal error to reach, and the most iterations (two layers each) for an entropic plan.

    Attributes
    ----------
    result_ : Result
        The plan with its error; ``coupling_`` is the plan as a matrix (n, m).
    xs_, xt_, mu_s_, mu_t_ : array
        The samples and their weights.
    classes_ : array
        The labels of the source, if there are any.

    Examples
    --------
    >>> import numpy as np
    >>> Xs, ys = np.array([[0.0], [1.0], [2.0]]), np.array(["low", "low", "high"])
    >>> adapter = DomainAdapter().fit(Xs, ys, Xt=Xs * 2 + 5)
    >>> adapter.transform(Xs).ravel().round(9).tolist(), adapter.transform([[2.5]]).tolist()
    ([5.0, 7.0, 9.0], [[9.5]])
    >>> adapter.predict([[5.1], [8.9]]).tolist()
    ['low', 'high']
    """

    result_: Result

    def __init__(
        self,
        reg_e: float = 0.0,
        metric: str = "sqeuclidean",
        norm: str | None = None,
        distribution_estimation: Callable[[Array], Any] | None = None,
        out_of_sample_map: str = "auto",
        limit_max: float = np.inf,
        tol: float = 1e-8,
        max_iter: int = 5000,
    ) -> None:
        self.reg_e, self.norm, self.distribution_estimation = reg_e, norm, distribution_estimation
        self.metric: Any = metric
        self.out_of_sample_map, self.limit_max, self.tol, self.max_iter = out_of_sample_map, limit_max, tol, max_iter

    @needs(lambda Xs, Xt, **_: of_points(Xs, Xt))
    def fit(self, Xs: Any, ys: Any = None, Xt: Any = None, yt: Any = None) -> Self:
        """Solve the transport from Xs (n, d) to Xt (m, d).

        `predict` transfers the labels ys (n,). With labels yt (m,) too, pairs of different classes are forbidden or cost
        ``limit_max``; −1 marks a point without a label.
        """
        reg = self._checked()
        source = read_sample("Xs", Xs).astype(np.float64)
        target = read_sample("Xt", Xt, type(self).__name__, source.shape[1]).astype(np.float64)
        ys = None if ys is None else read_classes("ys", ys, len(source))
        yt = None if yt is None else read_classes("yt", yt, len(target))
        self.mu_s_, self.mu_t_ = self._weights(source), self._weights(target)
        self._reg = reg * self._unit(source, target)
        effort: dict[str, Any] = {"tol": self.tol} | ({"max_depth": 2 * self.max_iter} if self._reg else {})
        self._by_labels = ys is not None and yt is not None
        if ys is None or yt is None:
            found = solve_sample(source, target, self.mu_s_, self.mu_t_, reg=self._reg, metric=self.metric, **effort)
        else:
            cost = self._by_class(cdist(source, target, self.metric), ys, yt)
            found = solve(cost, self.mu_s_, self.mu_t_, reg=self._reg, **effort)
        self.result_, self.xs_, self.xt_, self._ys = found, source, target, ys
        self.n_features_in_, self.n_iter_ = source.shape[1], max(1, -(-found.depth // 2))
        self._name_features(Xs)
        if ys is not None:
            self.classes_ = np.unique(ys[_labelled(ys)])
        return self

    def fit_transform(self, Xs: Any, ys: Any = None, Xt: Any = None, yt: Any = None) -> Array:
        """`fit`, then the images of the source points, (n, d)."""
        return self.fit(Xs, ys, Xt, yt).transform(Xs)

    def transform(self, Xs: Any) -> Array:
        """The images (k, d) of source points, those of `fit` or new ones."""
        return self._moved("Xs", Xs, False)

    def inverse_transform(self, Xt: Any) -> Array:
        """The images (k, d), on the source side, of target points, those of `fit` or new ones."""
        return self._moved("Xt", Xt, True)

    def predict(self, Xt: Any) -> Array:
        """Classes (k,) of target points: the class that sends the most mass; −1 if no label arrives."""
        self._need_fit()
        self._same_features(Xt)
        x = read_sample("Xt", Xt, type(self).__name__, self.n_features_in_)
        if self._ys is None:
            raise checks.ArgumentError("ys", "be given to fit", advice="predict hands on the labels of the source")
        masses = _one_hot(self._ys, self.classes_)
        shares = self._sent(x, masses, True) if self._continuous() else self._means(masses, True)[_nearest(x, self.xt_)]
        found = self.classes_[shares.argmax(1)]
        return found if found.dtype.kind in "US" else np.where(shares.any(1), found, UNLABELLED)

    def transform_labels(self, ys: Any) -> Array:
        """Shares of the classes of ys (n,), in order, that come to every target point of `fit`, (m, classes)."""
        self._need_fit()
        ys = read_classes("ys", ys, len(self.xs_))
        return self._means(_one_hot(ys, np.unique(ys)), True)

    def inverse_transform_labels(self, yt: Any) -> Array:
        """Shares of the classes of yt (m,), in order, to which every source point of `fit` goes, (n, classes)."""
        self._need_fit()
        yt = read_classes("yt", yt, len(self.xt_))
        return self._means(_one_hot(yt, np.unique(yt)), False)

    @property
    def coupling_(self) -> Array:
        """The plan as a matrix (n, m)."""
        self._need_fit()
        plan = self.result_.plan
        return np.asarray(plan.toarray() if hasattr(plan, "toarray") else plan @ np.eye(len(self.xt_)))

    def _checked(self) -> float:
        """λ; parameters are checked when they are used, as scikit-learn wants it."""
        checks.choice("metric", self.metric, METRICS)
        checks.choice("out_of_sample_map", self.out_of_sample_map, MAPS)
        if self.norm is not None:
            checks.choice("norm", self.norm, ("max", "median"))
        if self.limit_max != np.inf:
            checks.not_negative("limit_max", self.limit_max)
        checks.count("max_iter", self.max_iter)
        return checks.not_negative("reg_e", self.reg_e)

    def _weights(self, sample: Array) -> Array:
        estimate = self.distribution_estimation
        given = np.ones(len(sample)) if estimate is None else checks.array("distribution_estimation", estimate(sample))
        if given.shape != (len(sample),) or not (given >= 0).all():
            expected = f"give weights of shape ({len(sample)},), none below 0"
            raise checks.ArgumentError("distribution_estimation", expected, f"shape {given.shape}, least {given.min():g}")
        weight_checks.positive_sums("distribution_estimation", given.sum())
        return np.asarray(given / given.sum(), np.float64)

    def _unit(self, source: Array, target: Array) -> float:
        """What λ is in units of."""
        if self.norm is None or not self.reg_e:
            return 1.0
        costs = cdist(source, target, self.metric)
        unit = float(costs.max() if self.norm == "max" else np.median(costs))
        return checks.positive(f"the {self.norm} of the costs", unit)

    def _by_class(self, costs: Array, ys: Array, yt: Array) -> Array:
        """The costs, with those between different classes infinite or large."""
        limit = self.limit_max if self.limit_max == np.inf else self.limit_max * costs.max()
        other = (ys[:, None] != yt) & _labelled(ys)[:, None] & _labelled(yt)
        return np.where(other, np.maximum(costs, limit), costs)

    def _continuous(self) -> bool:
        smooth = self._reg > 0 and not self._by_labels
        return self.out_of_sample_map == "continuous" or (self.out_of_sample_map == "auto" and smooth)

    def _moved(self, name: str, given: Any, inverse: bool) -> Array:
        """Where these points go, or come from."""
        self._need_fit()
        self._same_features(given)
        x = read_sample(name, given, type(self).__name__, self.n_features_in_)
        own, other = (self.xt_, self.xs_) if inverse else (self.xs_, self.xt_)
        if self._continuous():
            return self._sent(x, other, inverse).astype(x.dtype)
        means = self._means(other, inverse)
        if np.array_equal(x, own):  # repeated points keep their own means
            return means.astype(x.dtype)
        nearest = _nearest(x, own)
        return (means[nearest] + x - own[nearest]).astype(x.dtype)

    def _sent(self, x: Array, values: Array, inverse: bool) -> Array:
        """Means of values by the potentials, (k, c)."""
        known = KnownPoints(self.xs_, self.xt_, self.metric)
        pairs = getattr(self.result_, "pairs", None)
        return np.asarray(transported(known, self._reg, self.result_.potentials, pairs, x, values, inverse))

    def _means(self, values: Array, inverse: bool) -> Array:
        """Means of values (m, c) over the plan's rows, (n, c); inverse, of values (n, c) over its columns, (m, c)."""
        if not inverse:
            return np.asarray(self.result_.map(values))
        sums = np.asarray(self.result_.plan.T @ np.column_stack([values, np.ones(len(values))]))
        return np.asarray(sums[:, :-1] / np.where(sums[:, -1:] > 0, sums[:, -1:], 1.0))


def _nearest(x: Array, own: Array) -> Array:
    """The index of the nearest of ``own`` to every x, (k,), in blocks."""
    step = max(1, DISTANCES_AT_ONCE // len(own))
    found = [cdist(x[k : k + step], own, "sqeuclidean").argmin(1) for k in range(0, len(x), step)]
    return np.concatenate(found)


def _labelled(y: Array) -> Array:
    return np.ones(len(y), bool) if y.dtype.kind in "US" else y != UNLABELLED


def _one_hot(y: Array, classes: Array) -> Array:
    return (y[:, None] == classes).astype(np.float64)
