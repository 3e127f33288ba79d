(** The numbers of section 5 and of Theorem C, by interval arithmetic inside the proof assistant.
    omega_c is between 1.884013 and 1.884014; c_omega is the largest c with gain omega t >= 2 c t^2 on [-1, 1]. *)
From Coq Require Import Reals Lra.
From Coquelicot Require Import Coquelicot.
From Interval Require Import Tactic.
From OTformer Require Import Tanh Descent.
Open Scope R_scope.

(** Near 0 by the polynomial, elsewhere by bisection. *)
Ltac near_zero t :=
  match goal with |- _ <= gain ?w _ => apply Rle_trans with (2 := gain_near_zero w t ltac:(lra) ltac:(lra)) end;
  rewrite Rmult_comm; apply Rmult_le_compat_l; [apply pow2_ge_0|]; unfold taylor.
Ltac far t := unfold gain; interval with (i_bisect t, i_taylor t, i_degree 6, i_prec 60, i_depth 30).

Definition fall_constant (w c : R) : Prop := forall t, -1 <= t <= 1 -> 2 * c * t ^ 2 <= gain w t.

(** A larger constant is refuted by one point. *)
Lemma not_fall_constant (w c t : R) : -1 <= t <= 1 -> gain w t < 2 * c * t ^ 2 -> ~ fall_constant w c.
Proof. intros T G F. specialize (F t T). lra. Qed.

(** The end of the range: at omega = 1.884013 there is a positive constant still, between 1.27e-6 and 1.28e-6. *)
Theorem c_1_884013 : fall_constant (1884013 / 1000000) (127 / 100000000) /\
  ~ fall_constant (1884013 / 1000000) (128 / 100000000).
Proof.
  split; [|apply (not_fall_constant _ _ (-35956 / 100000)); [lra | unfold gain; interval with (i_prec 60)]].
  intros t T. destruct (Rlt_dec t (-1 / 10)) as [L|L]; [|destruct (Rlt_dec (1 / 10) t) as [U|U]].
  - assert (-1 <= t <= -1 / 10) by lra. apply Rminus_le_0. far t.
  - assert (1 / 10 <= t <= 1) by lra. apply Rminus_le_0. far t.
  - assert (-1 / 10 <= t <= 1 / 10) by lra. near_zero t. apply Rminus_le_0. interval with (i_prec 60, i_bisect t).
Qed.

Lemma gain_positive (t : R) : -1 <= t <= 1 -> t <> 0 -> 0 < gain (1884013 / 1000000) t.
Proof. intros T N. pose proof (proj1 c_1_884013 t T). assert (0 < t ^ 2) by (rewrite <- Rsqr_pow2; now apply Rlt_0_sqr). lra. Qed.

(** 5.3, and more: the dual falls for every omega up to 1.884013, at every z but 0. *)
Theorem dual_falls (w z : R) : 0 < w <= 1884013 / 1000000 -> z <> 0 -> h w z < 0.
Proof. intros W. apply (h_negative_below (1884013 / 1000000)); [lra | exact gain_positive | lra]. Qed.

Corollary dual_falls_to_1_8 (w z : R) : 0 < w <= 9 / 5 -> z <> 0 -> h w z < 0.
Proof. intros W. apply dual_falls; lra. Qed.

(** From 1.884014 on there is a z at which it rises; omega = 1.9 is a case. *)
Theorem dual_rises (w : R) : 1884014 / 1000000 <= w -> exists z, h w z > 0.
Proof.
  intros W. set (t := -359565 / 1000000).
  exists (ln ((1 + t) / (1 - t))).
  assert (T : tanh (ln ((1 + t) / (1 - t)) / 2) = t).
  { rewrite tanh_exp. replace (2 * (ln ((1 + t) / (1 - t)) / 2)) with (ln ((1 + t) / (1 - t))) by field.
    rewrite exp_ln; unfold t; [field | lra]. }
  pose proof (h_gain w (ln ((1 + t) / (1 - t)))) as E. rewrite T in E.
  pose proof (gain_concave (1884014 / 1000000) w t ltac:(lra) ltac:(lra) ltac:(unfold t; lra)) as C.
  assert (gain (1884014 / 1000000) t < 0) by (unfold gain, t; interval with (i_prec 60)).
  assert (0 < 1884014 / 1000000 / w) by (apply Rdiv_lt_0_compat; lra).
  assert (gain w t < 0) by nra. assert (0 < 1 - t) by (unfold t; lra). nra.
Qed.

(** *** The constants of Theorem C. *)
(** What the constant says of one coordinate of a head: the dual falls by lambda times at least c (S - a)^2/(S + a). *)
Theorem fall_by_the_residual (w c S a : R) : fall_constant w c -> 0 < S -> 0 < a ->
  a * h w (ln (S / a)) <= - (c * ((S - a) ^ 2 / (S + a))).
Proof.
  intros F HS Ha. set (z := ln (S / a)). set (t := tanh (z / 2)).
  assert (I : t = (S - a) / (S + a)) by (rewrite tanh_identity by assumption; unfold t, z; f_equal; field).
  pose proof (tanh_bounds (z / 2)) as B. fold t in B.
  pose proof (h_gain w z) as E. fold t in E. specialize (F t ltac:(lra)).
  assert (K : 1 - t = 2 * a / (S + a)) by (rewrite I; field; lra).
  assert (P : 0 < 1 - t) by lra.
  apply Rmult_le_reg_r with (1 - t); [assumption|].
  replace (a * h w z * (1 - t)) with (- (a * gain w t)) by (rewrite Rmult_assoc, E; ring).
  replace (- (c * ((S - a) ^ 2 / (S + a))) * (1 - t)) with (- (a * (2 * c * t ^ 2))); [nra|].
  rewrite K, I. field. lra.
Qed.

(** omega = 1: c = 1 - e^{-2}, attained at t = 1.  Near 1 the difference is decreasing. *)
Theorem c_1 : fall_constant 1 (1 - exp (-2)) /\ gain 1 1 = 2 * (1 - exp (-2)) * 1 ^ 2.
Proof.
  split; [|unfold gain; replace (- (2 * 1 * 1)) with (-2) by ring; ring].
  intros t T. destruct (Rlt_dec t (-1 / 10)) as [L|L].
  { assert (-1 <= t <= -1 / 10) by lra. apply Rminus_le_0. far t. }
  destruct (Rlt_dec t (1 / 10)) as [M|M].
  { assert (-1 / 10 <= t <= 1 / 10) by lra. near_zero t. apply Rminus_le_0. interval with (i_prec 60, i_bisect t). }
  destruct (Rlt_dec t (4 / 5)) as [U|U].
  { assert (1 / 10 <= t <= 4 / 5) by lra. apply Rminus_le_0. far t. }
  destruct (Req_dec t 1) as [->|N].
  { right. unfold gain. replace (- (2 * 1 * 1)) with (-2) by ring. ring. }
  destruct (MVT_cor2 (fun t => gain 1 t - 2 * (1 - exp (-2)) * t ^ 2)
    (fun t => (1 + 2 * t) * exp (- (2 * 1 * t)) + 4 * t * exp (-2) - 1) t 1) as [c [E C]]; [lra | |].
  - intros c _. unfold gain. apply is_derive_Reals. auto_derive; [exact I|]. ring.
  - assert (4 / 5 <= c <= 1) by lra.
    assert ((1 + 2 * c) * exp (- (2 * 1 * c)) + 4 * c * exp (-2) - 1 < 0)
      by interval with (i_prec 60, i_bisect c, i_taylor c).
    assert (gain 1 1 = 2 * (1 - exp (-2)) * 1 ^ 2) by (unfold gain; replace (- (2 * 1 * 1)) with (-2) by ring; ring).
    nra.
Qed.

(** omega = 3/2: c = 3/4 exactly, approached at t = 0, where the cubic term vanishes. *)
Theorem c_1_5 : fall_constant (3 / 2) (3 / 4) /\ forall c, fall_constant (3 / 2) c -> c <= 3 / 4.
Proof.
  split.
  2: { intros c F. apply Rnot_lt_le. intros N. set (t := Rmin (1 / 4) ((c - 3 / 4) / 4)).
    assert (T : 0 < t <= 1 / 4 /\ t <= (c - 3 / 4) / 4) by (split; [split; [apply Rmin_glb_lt; lra|] |]; apply Rmin_l || apply Rmin_r).
    specialize (F t ltac:(lra)). pose proof (exp_lower (- (2 * (3 / 2) * t)) ltac:(lra)) as E. unfold gain in F.
    assert (2 * c * t ^ 2 <= t ^ 2 * (3 / 2 + 9 / 2 * t ^ 2)) by nra.
    assert (0 < t ^ 2) by nra. assert (t ^ 2 <= t / 4) by nra. nra. }
  intros t T. destruct (Rlt_dec t (-1 / 10)) as [L|L]; [|destruct (Rlt_dec (1 / 10) t) as [U|U]].
  - assert (-1 <= t <= -1 / 10) by lra. apply Rminus_le_0. far t.
  - assert (1 / 10 <= t <= 1) by lra. apply Rminus_le_0. far t.
  - assert (-1 / 10 <= t <= 1 / 10) by lra. near_zero t.
    assert (Q : 0 <= 1 / 2 - (1 + t) * (3 / 8 - 9 * t / 40 + 27 * t ^ 2 / 80)) by interval with (i_prec 60).
    pose proof (pow2_ge_0 t). nra.
Qed.

(** omega = 9/5: between 0.237355 and 0.237356, attained near t = -0.301. *)
Theorem c_1_8 : fall_constant (9 / 5) (237355 / 1000000) /\ ~ fall_constant (9 / 5) (237356 / 1000000).
Proof.
  split; [|apply (not_fall_constant _ _ (-301 / 1000)); [lra | unfold gain; interval with (i_prec 60)]].
  intros t T. destruct (Rlt_dec t (-1 / 10)) as [L|L]; [|destruct (Rlt_dec (1 / 10) t) as [U|U]].
  - assert (-1 <= t <= -1 / 10) by lra. apply Rminus_le_0. far t.
  - assert (1 / 10 <= t <= 1) by lra. apply Rminus_le_0. far t.
  - assert (-1 / 10 <= t <= 1 / 10) by lra. near_zero t. apply Rminus_le_0. interval with (i_prec 60, i_bisect t).
Qed.

(** Every omega below has at least the proportional share. *)
Theorem c_below (w w' c : R) : 0 < w <= w' -> fall_constant w' c -> fall_constant w (w / w' * c).
Proof.
  intros W F t T. specialize (F t T). pose proof (gain_concave w w' t ltac:(lra) ltac:(lra) ltac:(lra)).
  assert (0 < w / w') by (apply Rdiv_lt_0_compat; lra). nra.
Qed.

(** c_omega, the largest constant: it exists and is positive for all omega up to 1.884013. *)
Theorem c_omega (w : R) : 0 < w <= 1884013 / 1000000 ->
  exists c, 0 < c /\ fall_constant w c /\ forall c', fall_constant w c' -> c' <= c.
Proof.
  intros W. set (c0 := w / (1884013 / 1000000) * (127 / 100000000)).
  assert (C0 : fall_constant w c0) by (apply c_below; [lra | apply c_1_884013]).
  assert (P : 0 < c0) by (apply Rmult_lt_0_compat; [apply Rdiv_lt_0_compat |]; lra).
  destruct (completeness (fall_constant w)) as [c [Up Least]].
  - exists (gain w 1 / 2). intros c F. specialize (F 1 ltac:(lra)). lra.
  - now exists c0.
  - exists c. pose proof (Up c0 C0). split; [lra|]. split; [|exact Up]. intros t T.
    destruct (Req_dec t 0) as [->|N]; [pose proof (C0 0 ltac:(lra)); nra|].
    assert (Q : 0 < 2 * t ^ 2) by (pose proof (Rsqr_pos_lt t N); unfold Rsqr in *; nra).
    assert (E : gain w t / (2 * t ^ 2) * (2 * t ^ 2) = gain w t) by (field; exact N).
    assert (c <= gain w t / (2 * t ^ 2)); [|nra].
    apply Least. intros c' F. specialize (F t T). apply Rmult_le_reg_r with (2 * t ^ 2); [exact Q | lra].
Qed.
