(** Theorem E of docs/limits.md, what it says of the slow quantities: on every 2 x 2 cost u_0 - u_1 and v_1 - v_0 have one
    solution for all lambda, no layer with steps up to 2 lambda leads away from it, whatever its lambda, and one with a
    lambda of 8 times the largest cost divides the distance by 12.  Weights are 1;
      the rows are 0 and 1, and so are the columns. *)
From Coq Require Import Reals Lra Lia.
From OTformer Require Import Tanh Layer Birkhoff TheoremA HilbertRate TwoPoint.
Open Scope R_scope.

Section Solution.
Variable C : nat -> nat -> R.
Definition turn : R := C 0%nat 1%nat + C 1%nat 0%nat - C 0%nat 0%nat - C 1%nat 1%nat.

(** e and f, the distances of u_0 - u_1 and of v_1 - v_0 from the solution's. *)
Definition slow_u (u : nat ->
  R) : R := u 0%nat - u 1%nat - (C 0%nat 0%nat + C 0%nat 1%nat - C 1%nat 0%nat - C 1%nat 1%nat) / 2.
Definition slow_v (v : nat ->
  R) : R := v 1%nat - v 0%nat - (C 0%nat 1%nat + C 1%nat 1%nat - C 0%nat 0%nat - C 1%nat 0%nat) / 2.

Variable lambda : R.
Hypothesis Lambda : 0 < lambda.

Theorem solution_for_every_lambda : exists us vs, solution 1 1 lambda C ones ones us vs /\ slow_u us = 0 /\ slow_v vs = 0.
Proof.
  set (e := (C 0%nat 0%nat + C 0%nat 1%nat - C 1%nat 0%nat - C 1%nat 1%nat) / 2).
  set (f := (C 0%nat 1%nat + C 1%nat 1%nat - C 0%nat 0%nat - C 1%nat 0%nat) / 2).
  set (p := exp (- (C 0%nat 0%nat + C 1%nat 1%nat) / 2 / lambda - 1)).
  set (r := exp (- (C 0%nat 1%nat + C 1%nat 0%nat) / 2 / lambda - 1)).
  assert (P : 0 < p) by apply exp_pos. assert (Q : 0 < r) by apply exp_pos. set (s := - lambda * ln (p + r)).
  set (us := fun i : nat => match i with O => s + e / 2 | _ => s - e / 2 end).
  set (vs := fun j : nat => match j with O => - f / 2 | _ => f / 2 end).
  assert (X : forall x, exp (- ln (p + r) + x) = exp x / (p + r)).
  { intros x. rewrite exp_plus, exp_Ropp, exp_ln by lra. field. lra. }
  assert (M : plan lambda C us vs 0 0 = p / (p + r) /\ plan lambda C us vs 1 1 = p / (p + r) /\
              plan lambda C us vs 0 1 = r / (p + r) /\ plan lambda C us vs 1 0 = r / (p + r)).
  { unfold p at 1 3, r at 3 5. rewrite <- !X. unfold plan, us, vs, s, e, f. repeat split; f_equal; field; lra. }
  destruct M as [M00 [M11 [M01 M10]]]. exists us, vs. split.
  - assert (One : p / (p + r) + r / (p + r) = 1) by (field; lra).
    assert (One' : r / (p + r) + p / (p + r) = 1) by (field; lra).
    split; intros [|[|k]] K; try lia; unfold row, col, ones; simpl sum_f_R0; rewrite ?M00, ?M11, ?M01, ?M10; assumption.
  - unfold slow_u, slow_v, us, vs, e, f. lra.
Qed.

Lemma cross_of_two : cross_ratios 1 1 lambda C (Rabs turn / lambda).
Proof.
  pose proof (Rabs_pos turn) as P. split; [apply Rmult_le_pos; [exact P | left; now apply Rinv_0_lt_compat]|].
  replace (lambda * (Rabs turn / lambda)) with (Rabs turn) by (field; lra).
  assert (B : turn <= Rabs turn /\ - turn <= Rabs turn) by (unfold Rabs; destruct Rcase_abs; lra). unfold turn in *.
  intros [|[|i]] [|[|l]] [|[|j]] [|[|h]] I L J H; try lia; lra.
Qed.

Let kappa : R := eta (Rabs turn / lambda).

(** What one head does, a mixture of e and of a number that is smaller than f. *)
Lemma rows_mix g t u v : 0 <= g -> rows_within 1 1 lambda C ones u v t -> exists q d,
  g / (2 * lambda) * (1 - t * t) <= q <= g / (2 * lambda) /\ 0 <= q /\ Rabs d <= kappa * Rabs (slow_v v) /\
  slow_u (rows_head 1 lambda C ones g u v) = (1 - q) * slow_u u + q * d.
Proof.
  intros G T. destruct solution_for_every_lambda as [us [vs [S [SU SV]]]]. destruct cross_of_two as [Phi X].
  assert (Sp : forall i, 0 < row 1 lambda C u v i) by (intros; apply sum_pos; intros; apply exp_pos).
  assert (W : 0 <= g / (2 * lambda)) by (apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra]).
  destruct (head_moves 1 1 (plan lambda C us vs) ones (fun i => (u i - us i) / lambda) (fun j => (v j - vs j) / lambda)
    (fun i => ln (row 1 lambda C u v i / ones i)) (Rabs turn / lambda) (g / (2 * lambda)) t Phi)
      with (i := 0%nat) (l := 1%nat)
    as [q [d [Q [Q0 [D [D' E]]]]]]; try lia; try assumption.
  - intros; apply exp_pos.
  - apply S.
  - intros i l j h I L J H. now apply (plan_cross 1 1 lambda _ C us vs Lambda X).
  - intros i I. do 2 f_equal. apply sum_eq; intros. now apply (plan_moves lambda C u v us vs Lambda).
  - intros i I. rewrite <- half by (unfold ones; auto; lra). auto.
  - exists q, (lambda * d). split; [exact Q | split; [exact Q0|]].
    assert (O : osc (fun j => (v j - vs j) / lambda) 1 <= Rabs (slow_v v) / lambda).
    { apply osc_below. assert (B : - Rabs (slow_v v) <= slow_v v <= Rabs (slow_v v)) by (unfold Rabs; destruct Rcase_abs;
        lra).
      unfold slow_v in *. intros [|[|i]] [|[|k]] I K; try lia; unfold Rdiv; rewrite <- Rmult_minus_distr_r;
        (apply Rmult_le_compat_r; [left; now apply Rinv_0_lt_compat | lra]). }
    pose proof (eta_range _ Phi) as R. fold kappa in R, D, D'. apply (Rmult_le_compat_l kappa) in O; [|lra]. split.
    + replace (kappa * Rabs (slow_v v)) with (lambda * (kappa * (Rabs (slow_v v) / lambda))) by (field; lra).
      rewrite Rabs_mult, (Rabs_right lambda) by lra. apply Rmult_le_compat_l; [lra|]. apply Rabs_le; lra.
    + assert (Z : forall i, tanh (ln (row 1 lambda C u v i / ones i) / 2) = (row 1 lambda C u v i - ones i) / (row 1 lambda C u v i + ones i))
        by (intros; symmetry; apply half; [auto | unfold ones; lra]).
      cbv beta in E. rewrite !Z in E. unfold slow_u in SU |- *. unfold rows_head.
      set (x := (_ - ones 0) / _) in E |- *. set (y := (_ - ones 1) / _) in E |- *.
      replace (_ / 2) with (us 0%nat - us 1%nat) by lra.
      apply (f_equal (Rmult lambda)) in E. apply Rmult_eq_reg_r with 1; [|lra].
      transitivity (lambda * ((u 0%nat - us 0%nat) / lambda - 2 * (g / (2 * lambda)) * x -
        ((u 1%nat - us 1%nat) / lambda - 2 * (g / (2 * lambda)) * y))); [|rewrite E]; field; lra.
Qed.
End Solution.

(** The columns' head is the rows' head of the transposed problem. *)
Lemma cols_mix C lambda g t u v : 0 < lambda -> 0 <= g -> cols_within 1 1 lambda C ones u v t -> exists q d,
  g / (2 * lambda) * (1 - t * t) <= q <= g / (2 * lambda) /\ 0 <= q /\ Rabs d
    <= eta (Rabs (turn C) / lambda) * Rabs (slow_u C u) /\
  slow_v C (cols_head 1 lambda C ones g u v) = (1 - q) * slow_v C v + q * d.
Proof.
  intros L G T. assert (E : forall j, col 1 lambda C u v j = row 1 lambda (fun j i => C i j) v u j)
    by (intros; now rewrite col_mass, row_mass).
  destruct (rows_mix (fun j i => C i j) lambda L g t v u G) as [q [d [Q [Q0 [D X]]]]].
  { intros j J. rewrite <- E. now apply T. }
  assert (SV : forall x, slow_u (fun j i => C i j) x = - slow_v C x) by (intros; unfold slow_u, slow_v; lra).
  assert (SU : forall x, slow_v (fun j i => C i j) x = - slow_u C x) by (intros; unfold slow_u, slow_v; lra).
  assert (TU : turn (fun j i => C i j) = turn C) by (unfold turn; ring).
  rewrite SU, Rabs_Ropp, TU in D. exists q, (- d). split; [exact Q | split; [exact Q0 | split; [now rewrite Rabs_Ropp|]]].
  assert (V : slow_u (fun j i => C i j) (rows_head 1 lambda (fun j i => C i j) ones g v u) = - slow_v C (cols_head 1 lambda C ones g u v)).
  { rewrite <- SV. unfold slow_u, cols_head, rows_head. now rewrite !E. }
  rewrite V, SV in X. lra.
Qed.

(** *** The theorem. *)
Lemma mixed q d x k M : 0 <= q <= 1 -> 0 <= k <= 1 -> Rabs d <= k * M -> Rabs x <= M -> Rabs ((1 - q) * x + q * d) <= M.
Proof.
  intros Q K D X. assert (0 <= M) by (eapply Rle_trans; [apply Rabs_pos | exact X]).
  assert (E : Rabs d <= M) by nra. revert X E. clear D. unfold Rabs at 1 2. intros X E.
  assert (- M <= x <= M) by (destruct (Rcase_abs x); lra). assert (- M <= d <= M) by (destruct (Rcase_abs d); lra).
  apply Rabs_le. nra.
Qed.

Section Annealing.
Variable C : nat -> nat -> R.

(** E (a), one layer ... *)
Theorem slow_never_grows lambda gr gc u v M : 0 < lambda -> 0 <= gr <= 2 * lambda -> 0 <= gc <= 2 * lambda ->
  Rabs (slow_u C u) <= M -> Rabs (slow_v C v) <= M ->
  Rabs (slow_u C (rows_head 1 lambda C ones gr u v)) <= M /\ Rabs (slow_v C (cols_head 1 lambda C ones gc u v)) <= M.
Proof.
  intros L Gr Gc U V. destruct (solution_for_every_lambda C lambda L) as [us [vs [S _]]].
  destruct (all_within_one 1 1 lambda C ones ones u v us vs S) as [Tr Tc].
  destruct (rows_mix C lambda L gr 1 u v ltac:(lra) Tr) as [q [d [Q [Q0 [D ->]]]]].
  destruct (cols_mix C lambda gc 1 u v L ltac:(lra) Tc) as [q' [d' [Q' [Q0' [D' ->]]]]].
  pose proof (ratio_range lambda L gr ltac:(lra)). pose proof (ratio_range lambda L gc ltac:(lra)).
  destruct (cross_of_two C lambda L) as [Phi _]. pose proof (eta_range _ Phi) as E. set (k := eta _) in *.
  split; (eapply mixed with (k := k); try lra; eapply Rle_trans; [eassumption | apply Rmult_le_compat_l; lra]).
Qed.

(** ... and many, each with its own lambda and its own steps. *)
Theorem slow_stay_within (lambda gr gc : nat -> R) (u v : nat -> nat -> R) M :
  (forall k, 0 < lambda k /\ 0 <= gr k <= 2 * lambda k /\ 0 <= gc k <= 2 * lambda k) ->
  (forall k, u (S k) = rows_head 1 (lambda k) C ones (gr k) (u k) (v k)) ->
  (forall k, v (S k) = cols_head 1 (lambda k) C ones (gc k) (u k) (v k)) ->
  Rabs (slow_u C (u O)) <= M -> Rabs (slow_v C (v O)) <= M ->
  forall k, Rabs (slow_u C (u k)) <= M /\ Rabs (slow_v C (v k)) <= M.
Proof.
  intros G U V U0 V0 k. induction k as [|k [IU IV]]; [now split|]. destruct (G k) as [L [Gr Gc]].
  rewrite U, V. apply slow_never_grows; lra.
Qed.

(** E (b): lambda >= 8 max C, step 2 lambda, all |tanh(z/2)| of the head at most 1/24. *)
Variables (largest lambda : R).
Hypothesis Costs : forall i j, (i <= 1)%nat -> (j <= 1)%nat -> 0 <= C i j <= largest.
Hypothesis Hot : 0 < lambda /\ 8 * largest <= lambda.

Lemma eta_when_hot : 0 <= eta (Rabs (turn C) / lambda) <= / 16.
Proof.
  destruct Hot as [L H], (cross_of_two C lambda L) as [Phi _]. split; [apply eta_range, Phi|]. unfold eta.
  assert (T0 : tanh 0 = 0) by (rewrite tanh_exp, Rmult_0_r, exp_0; field).
  pose proof (tanh_lipschitz 0 (Rabs (turn C) / lambda / 4) ltac:(lra)) as T. rewrite T0 in T.
  assert (B : Rabs (turn C) <= 2 * largest).
  { pose proof (Costs 0 0 ltac:(lia) ltac:(lia)). pose proof (Costs 0 1 ltac:(lia) ltac:(lia)).
    pose proof (Costs 1 0 ltac:(lia) ltac:(lia)). pose proof (Costs 1 1 ltac:(lia) ltac:(lia)).
    unfold turn, Rabs. destruct Rcase_abs; lra. }
  assert (Rabs (turn C) / lambda <= / 4); [|lra].
  apply Rmult_le_reg_r with lambda; [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l; lra.
Qed.

Lemma twelfth q d x y k X : (1 - / 24 * / 24) <= q <= 1 -> 0 <= k <= / 16 -> Rabs d <= k * Rabs y ->
  Rabs x <= 12 * X -> Rabs y <= X -> Rabs ((1 - q) * x + q * d) <= X / 12.
Proof.
  intros Q K D X12 Y. assert (X0 : 0 <= X) by (eapply Rle_trans; [apply Rabs_pos | exact Y]).
  eapply Rle_trans; [apply Rabs_triang|]. rewrite !Rabs_mult, (Rabs_right (1 - q)), (Rabs_right q) by lra.
  assert (Rabs d <= / 16 * X) by (pose proof (Rabs_pos y); nra). pose proof (Rabs_pos x). pose proof (Rabs_pos d).
  assert ((1 - q) * Rabs x <= / 24 * / 24 * (12 * X)) by (apply Rmult_le_compat; lra). nra.
Qed.

Theorem hot_layer_divides_by_twelve u v X :
  (rows_within 1 1 lambda C ones u v (/ 24) -> Rabs (slow_u C u) <= 12 * X -> Rabs (slow_v C v) <= X ->
   Rabs (slow_u C (rows_head 1 lambda C ones (2 * lambda) u v)) <= X / 12) /\
  (cols_within 1 1 lambda C ones u v (/ 24) -> Rabs (slow_v C v) <= 12 * X -> Rabs (slow_u C u) <= X ->
   Rabs (slow_v C (cols_head 1 lambda C ones (2 * lambda) u v)) <= X / 12).
Proof.
  destruct Hot as [L _]. pose proof eta_when_hot as E. assert (One : 2 * lambda / (2 * lambda) = 1) by (field; lra).
  split; intros T A B.
  - destruct (rows_mix C lambda L (2 * lambda) (/ 24) u v ltac:(lra) T) as [q [d [Q [Q0 [D ->]]]]]. rewrite One in Q.
    pose proof (Rabs_pos (slow_v C v)). apply Rle_trans with (X / 12); [eapply twelfth; eauto; lra | lra].
  - destruct (cols_mix C lambda (2 * lambda) (/ 24) u v L ltac:(lra) T) as [q [d [Q [Q0 [D ->]]]]]. rewrite One in Q.
    pose proof (Rabs_pos (slow_u C u)). apply Rle_trans with (X / 12); [eapply twelfth; eauto; lra | lra].
Qed.
End Annealing.
