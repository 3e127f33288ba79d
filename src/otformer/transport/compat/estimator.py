"""What scikit-learn's functions ask of an estimator (clone, pipelines, searches, its checks), without scikit-learn.

An `Estimator` keeps the arguments of its constructor as attributes of the same names. `read_sample` reads its samples,
and says what is wrong in the words that scikit-learn's checks look for.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any, Self

import numpy as np

from otformer import checks


class NotFitted(ValueError, AttributeError):
    """A method that needs ``fit`` was called before it."""


class Estimator:
    """Parameters by name, as scikit-learn's ``BaseEstimator`` has them; no checks before ``fit``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor; ``deep`` has no effect, for none is an estimator."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor; unknown names are refused."""
        known = self.get_params()
        for name in params:
            checks.choice("set_params", name, known)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = (f"{k}={v!r}" for k, v in self.get_params().items() if repr(v) != repr(defaults[k].default))
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn, which alone calls this, may expect: dense numbers, no labels needed, the dtype kept."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        kept = TransformerTags(preserves_dtype=["float64", "float32"])
        return Tags(None, TargetTags(required=False), transformer_tags=kept, input_tags=InputTags())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def _need_fit(self) -> None:
        if not self.__sklearn_is_fitted__():
            known = sys.modules.get("sklearn.exceptions")  # its own class, where a caller may expect it
            refusal = NotFitted if known is None else known.NotFittedError
            raise refusal(f"this {type(self).__name__} is not fitted: call fit(Xs, ys, Xt) first")

    def _name_features(self, X: Any) -> None:
        """Keep the names of the columns of a table, if all are strings."""
        self.__dict__.pop("feature_names_in_", None)
        if names := _column_names(X):
            self.feature_names_in_ = np.array(names, dtype=object)

    def _same_features(self, X: Any) -> None:
        """Refuse a table of other columns than those of ``fit``."""
        known, names = getattr(self, "feature_names_in_", None), _column_names(X)
        if known is not None and names and names != known.tolist():
            raise checks.ArgumentError("columns", f"be {known.tolist()}, as in fit", names)


def _column_names(X: Any) -> list[str]:
    names = list(getattr(X, "columns", ()))
    return names if all(isinstance(name, str) for name in names) else []


def read_sample(name: str, given: Any, owner: str = "", features: int | None = None) -> np.ndarray:
    """A sample (n, d) of finite numbers, float32 or float64; of an estimator ``owner`` that expects so many features."""
    if given is None:
        raise checks.ArgumentError(name, "be given: an array (n, d)")
    if hasattr(given, "tocoo"):
        raise checks.ArgumentError(name, "be a dense array", "a sparse one: give its toarray()")
    given = given if hasattr(given, "detach") else checks.plain(name, given, "an array of numbers")
    if given.dtype == object:
        given = given.astype(np.float64)  # numpy names the entry that is not a number
    if np.iscomplexobj(given):
        raise checks.ArgumentError(name, "be real", advice="Complex data not supported")
    array = checks.array(name, given)
    if array.ndim != 2:
        hint = f"Reshape your data: {name}.reshape(-1, 1) has a point in every row" if array.ndim == 1 else ""
        raise checks.ArgumentError(name, "have shape (n, d)", array.shape, hint)
    if not array.size:
        lacking = "sample" if not len(array) else "feature"
        came = f"0 {lacking}(s) (shape={array.shape}) while a minimum of 1 is required"
        raise checks.ArgumentError(name, "have points", came, "have at least one point")
    if not np.isfinite(array).all():
        raise checks.ArgumentError(name, "be finite, without NaN or inf", checks.first_not_finite(array))
    if features is not None and array.shape[1] != features:
        came = f"X has {array.shape[1]} features, but {owner} is expecting {features} features as input"
        raise checks.ArgumentError(name, "have as many features as in fit", advice=came)
    return np.asarray(array)


def read_classes(name: str, given: Any, size: int) -> np.ndarray:
    """Labels (n,), numbers or strings."""
    labels = checks.plain(name, given, "an array of labels")
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.shape != (size,):
        raise checks.ArgumentError(name, f"have shape ({size},), a label for every point", labels.shape)
    return labels
