"""`DomainAdapter` beside POT's EMDTransport and SinkhornTransport, by scikit-learn's own checks, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import ot
import pytest

import otformer as of
from needs import missing
from otformer.transport.compat.estimator import read_sample

RNG = np.random.default_rng(8)
XS, XT = RNG.random((30, 3)), RNG.random((25, 3)) * 2 + 1
NEW = RNG.random((9, 3)) * 1.2
YS, YT = np.repeat([0, 1, 2], 10), np.repeat([0, 1, 2, -1, -1], 5)
EXACT, ENTROPIC = ot.da.EMDTransport, ot.da.SinkhornTransport
METRICS = ["sqeuclidean", "euclidean", "cosine"]


def theirs(reg: float, **options: Any) -> Any:
    more = {} if not reg else {"reg_e": reg, "tol": 1e-13, "max_iter": 100_000}
    return (ENTROPIC if reg else EXACT)(**more, **options)


def ours(reg: float, **options: Any) -> of.DomainAdapter:
    return of.DomainAdapter(reg_e=reg, tol=1e-11, **options)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("norm", [None, "max", "median"])
@pytest.mark.parametrize("reg", [0, 0.3])
def test_it_is_pots(reg: float, norm: str | None, metric: str) -> None:
    """Points of fit and new ones, both ways, where POT's Sinkhorn converges."""
    pot = theirs(reg, metric=metric, norm=norm).fit(Xs=XS, Xt=XT)
    adapter = ours(reg, metric=metric, norm=norm).fit(XS, Xt=XT)
    np.testing.assert_allclose(adapter.coupling_, pot.coupling_, atol=1e-9)
    for x in (XS, NEW):
        np.testing.assert_allclose(adapter.transform(x), pot.transform(Xs=x), atol=1e-6)
    for y in (XT, NEW + 1):
        np.testing.assert_allclose(adapter.inverse_transform(y), pot.inverse_transform(Xt=y), atol=1e-6)
    np.testing.assert_allclose(adapter.transform_labels(YS), pot.transform_labels(ys=YS), atol=1e-8)
    of_target = np.repeat([0, 1, 2, 3, 4], 5)
    np.testing.assert_allclose(
        adapter.inverse_transform_labels(of_target), pot.inverse_transform_labels(yt=of_target), atol=1e-8
    )


def test_both_maps_of_new_points() -> None:
    pot = theirs(0.3, out_of_sample_map="ferradans").fit(Xs=XS, Xt=XT)
    np.testing.assert_allclose(
        ours(0.3, out_of_sample_map="ferradans").fit(XS, Xt=XT).transform(NEW), pot.transform(Xs=NEW), atol=1e-6
    )
    exact = ours(0, out_of_sample_map="continuous").fit(XS, Xt=XT)
    np.testing.assert_allclose(exact.transform(NEW), of.solve_sample(XS, XT, reg=0).transform(NEW), atol=1e-12)


@pytest.mark.parametrize("limit", [10.0, np.inf])
@pytest.mark.parametrize("reg", [0, 0.5])
def test_labels_of_both_samples_forbid_pairs(reg: float, limit: float) -> None:
    with np.errstate(over="ignore"):  # POT divides its largest number by λ
        pot = theirs(reg, limit_max=limit, out_of_sample_map="ferradans").fit(Xs=XS, ys=YS, Xt=XT, yt=YT)
    adapter = ours(reg, limit_max=limit).fit(XS, YS, XT, YT)
    other = (YS[:, None] != YT) & (YT != -1)
    np.testing.assert_allclose(adapter.coupling_[other], 0, atol=1e-9 if reg == 0 or limit == np.inf else 1e-4)
    if not (reg == 0 and limit == np.inf):  # POT's solver takes infinite costs for 0 there
        np.testing.assert_allclose(adapter.transform(XS), pot.transform(Xs=XS), atol=1e-6)
    np.testing.assert_allclose(adapter.coupling_.sum(1), 1 / 30, atol=1e-8)
    assert (adapter.predict(XT)[YT != -1] == YT[YT != -1]).all()


def test_weights_are_those_of_the_function() -> None:
    def weights(x: np.ndarray) -> np.ndarray:
        return x[:, 0] / x[:, 0].sum()

    pot = theirs(0, distribution_estimation=weights).fit(Xs=XS, Xt=XT)
    adapter = ours(0, distribution_estimation=weights).fit(XS, Xt=XT)
    np.testing.assert_allclose(adapter.coupling_, pot.coupling_, atol=1e-12)


@pytest.mark.parametrize("reg", [0, 0.1])
def test_predict_hands_on_labels(reg: float) -> None:
    centres = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    xs, xt = (centres[YS] + RNG.normal(size=(30, 2)) * 0.3 for _ in range(2))
    moved = xt @ [[0, 1], [-1, 0]] * 0.2 + centres[YS] + 2
    names = np.array(["red", "green", "blue"])[YS]
    adapter = of.DomainAdapter(reg).fit(xs, names, moved)
    assert (adapter.predict(moved) == names).all()
    assert (adapter.predict(moved + 0.01) == names).all()
    assert adapter.classes_.tolist() == ["blue", "green", "red"]


def test_parameters_and_pickles_without_scikit_learn() -> None:
    adapter = of.DomainAdapter(0.5, norm="max")
    assert repr(adapter) == "DomainAdapter(reg_e=0.5, norm='max')"
    assert type(adapter)(**adapter.get_params()).get_params() == adapter.get_params()
    assert adapter.set_params(reg_e=0.0, norm=None).reg_e == 0
    again = pickle.loads(pickle.dumps(adapter.fit(XS, Xt=XT)))
    np.testing.assert_array_equal(again.transform(NEW), adapter.transform(NEW))


REFUSED = {
    "Xt must be given": {"Xt": None},
    "Xt must have as many features as in fit, got .*: X has 2 features, but DomainAdapter is expecting 3": {"Xt": XT[:, :2]},
    "Xs must have shape .*Reshape your data": {"Xs": XS[:, 0]},
    "Xs must have points, got 0 sample": {"Xs": XS[:0]},
    "Xs must be finite, without NaN or inf, got nan at index": {"Xs": XS * np.nan},
    r"ys must have shape \(30,\)": {"ys": YS[:4]},
    r"yt must have shape \(25,\)": {"ys": YS, "yt": YT[:4]},
}


@pytest.mark.parametrize("said", REFUSED)
def test_wrong_samples_are_one_line(said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said.replace(', got .*', '.*')}") as refused:
        of.DomainAdapter().fit(**({"Xs": XS, "Xt": XT} | REFUSED[said]))
    assert "\n" not in str(refused.value)


def test_wrong_parameters_and_order_are_one_line() -> None:
    wrong = {"reg_e": -1, "metric": "chebyshev", "norm": "log", "out_of_sample_map": "near", "limit_max": -1, "max_iter": 0}
    wrong["distribution_estimation"] = lambda x: -np.ones(len(x))
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"^{name} must"):
            of.DomainAdapter(**{name: value}).fit(XS, Xt=XT)
    with pytest.raises(ValueError, match="set_params must be one of reg_e"):
        of.DomainAdapter().set_params(reg=1)
    with pytest.raises(ValueError, match=r"is not fitted: call fit\(Xs, ys, Xt\) first"):
        of.DomainAdapter().transform(XS)
    with pytest.raises(ValueError, match="ys must be given to fit"):
        of.DomainAdapter().fit(XS, Xt=XT).predict(XT)
    with pytest.raises(ValueError, match=r"M or mask must allow a plan|forbid"):
        of.DomainAdapter().fit(XS, YS, XT, np.zeros(25, int))


class OnOneSample(of.DomainAdapter):
    """scikit-learn's checks have one sample: the target is that sample, reversed, stretched and moved."""

    def fit(self, X: Any, y: Any = None) -> OnOneSample:  # type: ignore[override]
        super().fit(X, y, read_sample("Xs", X)[::-1] * 1.5 + 1)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:  # type: ignore[override]
        return self.fit(X, y).transform(X)


@pytest.mark.slow
@pytest.mark.parametrize("reg", [0, 0.5])
def test_scikit_learns_checks(reg: float) -> None:
    checks = pytest.importorskip("sklearn.utils.estimator_checks", reason=missing("sklearn"))
    with pytest.warns(UserWarning, match="does not inherit"):
        found = checks.check_estimator(OnOneSample(reg), on_fail=None, on_skip=None)
    failed = {each["check_name"]: each["exception"] for each in found if each["status"] not in ("passed", "skipped")}
    assert len(found) > 40
    assert not failed, failed


def test_it_is_cloned_and_searched() -> None:
    base = pytest.importorskip("sklearn.base", reason=missing("sklearn"))
    assert base.clone(of.DomainAdapter(0.3, limit_max=np.inf)).get_params() == of.DomainAdapter(0.3).get_params()
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    with pytest.raises(NotFittedError):
        of.DomainAdapter().transform(XS)
    check_is_fitted(of.DomainAdapter().fit(XS, Xt=XT))
