(** Section 1 of docs/theory.md: what tanh is to a softmax over S and a. *)
From Coq Require Import Reals Lra.
Open Scope R_scope.

(** tanh x = 1 - 2/(e^{2x} + 1): one exponential instead of four makes the rest easy. *)
Lemma tanh_exp (x : R) : tanh x = 1 - 2 / (exp (2 * x) + 1).
Proof.
  pose proof (exp_pos x); pose proof (exp_pos (2 * x)).
  unfold tanh, sinh, cosh.
  replace (2 * x) with (x + x) by ring. rewrite exp_plus, exp_Ropp.
  field; repeat split; nra.
Qed.

(** The identity. *)
Theorem tanh_identity (S a : R) : 0 < S -> 0 < a -> (S - a) / (S + a) = tanh (/ 2 * ln (S / a)).
Proof.
  intros HS Ha. rewrite tanh_exp.
  replace (2 * (/ 2 * ln (S / a))) with (ln (S / a)) by field.
  rewrite exp_ln by (now apply Rdiv_lt_0_compat).
  field; split; lra.
Qed.

Lemma tanh_bounds (x : R) : -1 < tanh x < 1.
Proof.
  pose proof (exp_pos (2 * x)) as E. rewrite tanh_exp.
  assert (0 < 2 / (exp (2 * x) + 1) < 2); [|lra].
  split; [apply Rdiv_lt_0_compat; lra|].
  apply Rmult_lt_reg_r with (exp (2 * x) + 1); [lra|].
  unfold Rdiv; rewrite Rmult_assoc, Rinv_l; lra.
Qed.

Lemma tanh_increasing (x y : R) : x <= y -> tanh x <= tanh y.
Proof.
  intros H. rewrite !tanh_exp.
  pose proof (exp_pos (2 * x)); pose proof (exp_pos (2 * y)).
  assert (exp (2 * x) <= exp (2 * y)) by (destruct (Req_dec x y); [subst; lra | left; apply exp_increasing; lra]).
  assert (2 / (exp (2 * y) + 1) <= 2 / (exp (2 * x) + 1)); [|lra].
  apply Rmult_le_compat_l; [lra|]. apply Rinv_le_contravar; lra.
Qed.

(** tanh is 1-Lipschitz, since its derivative is 1 - tanh^2 <= 1. *)
Lemma tanh_derivative (x : R) : derivable_pt_lim tanh x (1 - tanh x * tanh x).
Proof.
  replace (1 - tanh x * tanh x) with ((cosh x * cosh x - sinh x * sinh x) / Rsqr (cosh x)).
  - apply derivable_pt_lim_div; [apply derivable_pt_lim_sinh | apply derivable_pt_lim_cosh |].
    unfold cosh; pose proof (exp_pos x); pose proof (exp_pos (- x)); lra.
  - unfold tanh, Rsqr; field. unfold cosh; pose proof (exp_pos x); pose proof (exp_pos (- x)); lra.
Qed.

Lemma tanh_lipschitz (x y : R) : x <= y -> tanh y - tanh x <= y - x.
Proof.
  intros H. destruct (Req_dec x y) as [->|N]; [lra|].
  destruct (MVT_cor2 tanh (fun t => 1 - tanh t * tanh t) x y) as [c [E _]]; [lra | intros; apply tanh_derivative |].
  rewrite E. nra.
Qed.

(** A lower bound that is sharp at 0: it makes the bound on the step in NonExpansive.v sharp. *)
Lemma tanh_lower (x : R) : 0 <= x -> x / (1 + x) <= tanh x.
Proof.
  intros H. rewrite tanh_exp. pose proof (exp_ineq1_le (2 * x)) as E.
  assert (2 / (exp (2 * x) + 1) <= / (1 + x)).
  - replace (/ (1 + x)) with (2 / (2 * x + 2)) by (field; lra).
    apply Rmult_le_compat_l; [lra|]. apply Rinv_le_contravar; lra.
  - replace (x / (1 + x)) with (1 - / (1 + x)) by (field; lra). lra.
Qed.
