(** Section 5 of docs/theory.md: one head with gamma = 2 lambda omega lowers the dual for every omega up to omega_c.
    By 5.1 it changes the dual by lambda * sum_i a_i h(z_i); here is the sign of h, and of what Theorem C needs of it. *)
From Coq Require Import Reals Lra.
From Coquelicot Require Import Coquelicot.
From Interval Require Import Tactic.
From OTformer Require Import Tanh.
Open Scope R_scope.

Definition h (w z : R) : R := exp (z - 2 * w * tanh (z / 2)) - exp z + 2 * w * tanh (z / 2).

(** With t = tanh(z/2), e^z = (1 + t)/(1 - t), so that h (1 - t) = - gain: a function of t in (-1, 1) alone. *)
Definition gain (w t : R) : R := (1 + t) * (1 - exp (- (2 * w * t))) - 2 * w * t * (1 - t).

Lemma h_gain (w z : R) : h w z * (1 - tanh (z / 2)) = - gain w (tanh (z / 2)).
Proof.
  unfold h, gain. pose proof (tanh_bounds (z / 2)).
  assert (E : exp z * (1 - tanh (z / 2)) = 1 + tanh (z / 2)).
  { rewrite tanh_exp. replace (2 * (z / 2)) with z by field. field. pose proof (exp_pos z); lra. }
  set (t := tanh (z / 2)) in *. replace (z - 2 * w * t) with (z + - (2 * w * t)) by ring. rewrite exp_plus.
  set (y := exp (- (2 * w * t))).
  replace ((exp z * y - exp z + 2 * w * t) * (1 - t)) with (exp z * (1 - t) * (y - 1) + 2 * w * t * (1 - t)) by ring.
  rewrite E. ring.
Qed.

Lemma tanh_zero (z : R) : tanh (z / 2) = 0 -> z = 0.
Proof.
  rewrite tanh_exp. replace (2 * (z / 2)) with z by field. intros H. pose proof (exp_pos z).
  apply exp_inv. rewrite exp_0.
  assert (2 / (exp z + 1) * (exp z + 1) = 2) by (field; lra). nra.
Qed.

(** *** From one omega to all smaller ones: the gain is concave in omega and 0 at omega = 0. *)
Lemma exp_convex (q p : R) : 0 <= q <= 1 -> exp (q * p) <= q * exp p + (1 - q).
Proof.
  intros Q. pose proof (exp_pos (q * p)) as P.
  assert (A : exp (q * p) * (1 + (1 - q) * p) <= exp p).
  { replace p with (q * p + (1 - q) * p) at 3 by ring. rewrite exp_plus.
    apply Rmult_le_compat_l; [lra | apply exp_ineq1_le]. }
  assert (B : exp (q * p) * (1 - q * p) <= 1).
  { apply Rle_trans with (exp (q * p) * exp (- (q * p))).
    - apply Rmult_le_compat_l; [lra|]. replace (1 - q * p) with (1 + - (q * p)) by ring. apply exp_ineq1_le.
    - right. rewrite <- exp_plus, Rplus_opp_r. apply exp_0. }
  nra.
Qed.

Lemma gain_concave (w w' t : R) : 0 <= w <= w' -> 0 < w' -> -1 <= t -> w / w' * gain w' t <= gain w t.
Proof.
  intros W W' T. unfold gain.
  assert (0 <= w / w' <= 1) as Q.
  { split; [apply Rmult_le_pos; [lra | left; now apply Rinv_0_lt_compat]|].
    apply Rmult_le_reg_r with w'; [assumption|]. unfold Rdiv; rewrite Rmult_assoc, Rinv_l; lra. }
  pose proof (exp_convex (w / w') (- (2 * w' * t)) Q) as E.
  replace (w / w' * - (2 * w' * t)) with (- (2 * w * t)) in E by (field; lra).
  replace (2 * w * t) with (w / w' * (2 * w' * t)) at 2 by (field; lra).
  nra.
Qed.

Lemma h_negative_below (w' : R) : 0 < w' -> (forall t, -1 <= t <= 1 -> t <> 0 -> 0 < gain w' t) ->
  forall w z, 0 < w <= w' -> z <> 0 -> h w z < 0.
Proof.
  intros W' P w z W Z. pose proof (h_gain w z) as E. pose proof (tanh_bounds (z / 2)) as T.
  assert (tanh (z / 2) <> 0) as N by (intros N; apply Z, tanh_zero, N).
  specialize (P (tanh (z / 2)) ltac:(lra) N).
  pose proof (gain_concave w w' (tanh (z / 2)) ltac:(lra) W' ltac:(lra)) as C.
  assert (0 < w / w') by (apply Rdiv_lt_0_compat; lra).
  nra.
Qed.

(** *** Near t = 0, where numbers in intervals cannot see the sign: Taylor's formula for r |-> e^{s r} on [0, 1]. *)
Definition taylor (s : R) : R := 1 / 2 + s / 6 + s ^ 2 / 24 + s ^ 3 / 120 + s ^ 4 / 240.

Lemma exp_scaled (s : R) (k : nat) (r : R) : is_derive_n (fun r => exp (s * r)) k r (s ^ k * exp (s * r)).
Proof.
  apply (is_derive_n_comp_scal exp); [|apply is_derive_n_exp].
  apply filter_forall; intros x j _. destruct j; [exact I|]. eexists. apply (is_derive_n_exp (S j)).
Qed.

Lemma exp_upper (s : R) : -1 <= s <= 1 -> exp s <= 1 + s + s ^ 2 * taylor s.
Proof.
  intros S. destruct (Taylor_Lagrange (fun r => exp (s * r)) 5 0 1 ltac:(lra)) as [c [C E]].
  - intros r _ [|k] _; [exact I|]. eexists. apply (exp_scaled s (Datatypes.S k)).
  - rewrite (is_derive_n_unique _ _ _ _ (exp_scaled s 6 c)) in E.
    cbn [sum_f_R0] in E.
    rewrite !(is_derive_n_unique _ _ _ _ (exp_scaled s _ 0)) in E.
    rewrite Rmult_1_r, Rmult_0_r, exp_0 in E. cbn [fact] in E. rewrite !INR_IZR_INZ in E. cbn in E.
    assert (exp (s * c) <= 3) by (assert (-1 <= s * c <= 1) by nra; interval with (i_prec 60)).
    assert (0 <= s ^ 6) by (replace (s ^ 6) with ((s ^ 3) ^ 2) by ring; apply pow2_ge_0).
    rewrite E. unfold taylor.
    nra.
Qed.

Lemma exp_lower (s : R) : -1 <= s <= 1 -> 1 + s + s ^ 2 / 2 + s ^ 3 / 6 <= exp s.
Proof.
  intros S. destruct (Taylor_Lagrange (fun r => exp (s * r)) 3 0 1 ltac:(lra)) as [c [C E]].
  - intros r _ [|k] _; [exact I|]. eexists. apply (exp_scaled s (Datatypes.S k)).
  - rewrite (is_derive_n_unique _ _ _ _ (exp_scaled s 4 c)) in E.
    cbn [sum_f_R0] in E.
    rewrite !(is_derive_n_unique _ _ _ _ (exp_scaled s _ 0)) in E.
    rewrite Rmult_1_r, Rmult_0_r, exp_0 in E. cbn [fact] in E. rewrite !INR_IZR_INZ in E. cbn in E.
    pose proof (exp_pos (s * c)). assert (0 <= s ^ 4) by (replace (s ^ 4) with ((s ^ 2) ^ 2) by ring; apply pow2_ge_0).
    rewrite E. nra.
Qed.

(** The gain is at least t^2 times a polynomial. *)
Lemma gain_near_zero (w t : R) : -1 <= 2 * w * t <= 1 -> -1 <= t ->
  t ^ 2 * (4 * w - 4 * w ^ 2 * (1 + t) * taylor (- (2 * w * t))) <= gain w t.
Proof.
  intros S T. pose proof (exp_upper (- (2 * w * t)) ltac:(lra)) as E. unfold gain.
  set (k := taylor (- (2 * w * t))) in *. nra.
Qed.
