(** Section 5.1 of docs/theory.md: what a layer does to the dual L(u, v) = lambda sum M - sum a u - sum b v, for every n
    and m.  With the sign of h (Constants.v): L falls in every layer, of heads in turn and of both heads at once. *)
From Coq Require Import Reals Lra Lia.
From OTformer Require Import Tanh Layer Birkhoff Descent Constants.
Open Scope R_scope.

Definition dual n m lambda C (a b u v : nat -> R) : R :=
  lambda * sum (row m lambda C u v) n - sum (fun i => a i * u i) n - sum (fun j => b j * v j) m.

(** *** Finite sums. *)
Lemma sum_swap (g : nat -> nat -> R) n m : sum (fun i => sum (g i) m) n = sum (fun j => sum (fun i => g i j) n) m.
Proof.
  induction n as [|n IH]; simpl; [reflexivity|]. rewrite IH, <- plus_sum. now apply sum_eq.
Qed.

Lemma sum_below (f : nat -> R) n : (forall i, (i <= n)%nat -> f i <= 0) -> sum f n <= 0.
Proof.
  intros H. replace 0 with (0 * sum f n) by ring. rewrite <- sum_scale. apply sum_Rle; intros i I. specialize (H i I). lra.
Qed.

Lemma sum_below_strict (f : nat -> R) n i :
  (forall i, (i <= n)%nat -> f i <= 0) -> (i <= n)%nat -> f i < 0 -> sum f n < 0.
Proof.
  intros H I N. induction n as [|n IH]; simpl; [replace i with O in N by lia; exact N|].
  pose proof (H (S n) ltac:(lia)) as Last.
  destruct (Nat.eq_dec i (S n)) as [->|D].
  - pose proof (sum_below f n ltac:(intros; apply H; lia)). lra.
  - pose proof (IH ltac:(intros; apply H; lia) ltac:(lia)). lra.
Qed.

(** The dual does not know which side is called rows. *)
Lemma dual_transposed n m lambda C a b u v : dual n m lambda C a b u v = dual m n lambda (fun j i => C i j) b a v u.
Proof.
  unfold dual, row at 1. rewrite sum_swap.
  replace (sum (fun j => sum (fun i => plan lambda C u v i j) n) m)
    with (sum (row n lambda (fun j i => C i j) v u) m); [ring|].
  apply sum_eq; intros j _. apply sum_eq; intros i _. unfold plan. now rewrite (Rplus_comm (u i)).
Qed.

(** *** 5.1: the rows' head with gamma = 2 lambda omega. *)
Section Rows.
Variables (n m : nat) (lambda : R) (C : nat -> nat -> R) (a b u v : nat -> R).
Hypothesis Lambda : 0 < lambda.
Hypothesis A : forall i, (i <= n)%nat -> 0 < a i.
Let S (i : nat) : R := row m lambda C u v i.

Lemma S_pos i : 0 < S i.
Proof. apply sum_pos; intros; apply exp_pos. Qed.

Lemma change_of_the_dual w :
  dual n m lambda C a b (rows_head m lambda C a (2 * lambda * w) u v) v - dual n m lambda C a b u v
  = sum (fun i => lambda * (a i * h w (ln (S i / a i)))) n.
Proof.
  set (U := rows_head m lambda C a (2 * lambda * w) u v). unfold dual.
  transitivity (sum (fun i => lambda * (row m lambda C U v i - S i) - (a i * U i - a i * u i)) n).
  { rewrite minus_sum, sum_scale, !minus_sum. change (sum S n) with (sum (row m lambda C u v) n). ring. }
  apply sum_eq; intros i I. specialize (A i I). pose proof (S_pos i) as P.
  set (t := tanh (ln (S i / a i) / 2)).
  assert (T : (S i - a i) / (S i + a i) = t) by (rewrite tanh_identity by assumption; unfold t; f_equal; field).
  assert (E : U i = u i - 2 * lambda * w * t) by (unfold U, rows_head; fold (S i); now rewrite T).
  assert (R : row m lambda C U v i = S i * exp (- (2 * w * t))).
  { unfold S, row. rewrite Rmult_comm, <- sum_scale. apply sum_eq; intros j _. unfold plan.
    rewrite E, <- exp_plus. f_equal. field. lra. }
  rewrite R, E. unfold h. fold t. replace (ln (S i / a i) - 2 * w * t) with (ln (S i / a i) + - (2 * w * t)) by ring.
  rewrite exp_plus, exp_ln by (now apply Rdiv_lt_0_compat). field. lra.
Qed.

(** 5.3 for the dual itself: it does not rise, and it falls unless the rows are right already. *)
Lemma h_sign w z : 0 < w <= 1884013 / 1000000 -> h w z <= 0.
Proof.
  intros W. destruct (Req_dec z 0) as [->|N]; [|left; now apply dual_falls].
  right. unfold h, tanh, Rdiv. rewrite Rmult_0_l, sinh_0, Rmult_0_l, Rmult_0_r, Rminus_0_r. ring.
Qed.

Theorem rows_head_lowers_the_dual w : 0 < w <= 1884013 / 1000000 ->
  dual n m lambda C a b (rows_head m lambda C a (2 * lambda * w) u v) v <= dual n m lambda C a b u v /\
  ((exists i, (i <= n)%nat /\ S i <> a i) ->
   dual n m lambda C a b (rows_head m lambda C a (2 * lambda * w) u v) v < dual n m lambda C a b u v).
Proof.
  intros W. pose proof (change_of_the_dual w) as E.
  assert (B : forall i, (i <= n)%nat -> lambda * (a i * h w (ln (S i / a i))) <= 0).
  { intros i I. pose proof (A i I). pose proof (h_sign w (ln (S i / a i)) ltac:(lra)). assert (0 < lambda * a i) by nra. nra. }
  split; [pose proof (sum_below _ n B); lra|].
  intros [i [I N]]. pose proof (A i I) as Ai. pose proof (S_pos i) as P.
  assert (ln (S i / a i) <> 0) as Z.
  { intros Z. apply N. assert (S i / a i = 1) as Q.
    { apply ln_inv; [now apply Rdiv_lt_0_compat | lra | now rewrite ln_1]. }
    apply Rmult_eq_reg_r with (/ a i); [rewrite Rinv_r by lra; exact Q | apply Rinv_neq_0_compat; lra]. }
  pose proof (dual_falls w _ ltac:(lra) Z) as F.
  pose proof (sum_below_strict _ n i B I ltac:(assert (0 < lambda * a i) by nra; nra)). lra.
Qed.

(** The fall that Theorem C adds up. *)
Theorem rows_head_lowers_by_the_residual w c : fall_constant w c ->
  dual n m lambda C a b (rows_head m lambda C a (2 * lambda * w) u v) v
  <= dual n m lambda C a b u v - lambda * c * sum (fun i => (S i - a i) ^ 2 / (S i + a i)) n.
Proof.
  intros F. pose proof (change_of_the_dual w) as E.
  assert (sum (fun i => lambda * (a i * h w (ln (S i / a i)))) n
          <= - (lambda * c) * sum (fun i => (S i - a i) ^ 2 / (S i + a i)) n); [|lra].
  rewrite <- sum_scale. apply sum_Rle; intros i I.
  pose proof (fall_by_the_residual w c (S i) (a i) F (S_pos i) (A i I)). nra.
Qed.
End Rows.

(** *** The columns' head is the rows' head of the transposed problem. *)
Lemma cols_head_transposed n lambda C b g u v j :
  cols_head n lambda C b g u v j = rows_head n lambda (fun j i => C i j) b g v u j.
Proof. unfold cols_head, rows_head. now rewrite col_mass. Qed.

Lemma dual_ext n m lambda C a b u v v' : (forall j, v j = v' j) -> dual n m lambda C a b u v = dual n m lambda C a b u v'.
Proof.
  intros H. unfold dual.
  replace (sum (row m lambda C u v) n) with (sum (row m lambda C u v') n)
    by (apply sum_eq; intros; apply sum_eq; intros; unfold plan; now rewrite H).
  replace (sum (fun j => b j * v j) m) with (sum (fun j => b j * v' j) m) by (apply sum_eq; intros; now rewrite H).
  reflexivity.
Qed.

Theorem cols_head_lowers_by_the_residual n m lambda C a b u v w c : 0 < lambda -> (forall j, (j <= m)%nat -> 0 < b j) ->
  fall_constant w c ->
  dual n m lambda C a b u (cols_head n lambda C b (2 * lambda * w) u v)
  <= dual n m lambda C a b u v
     - lambda * c * sum (fun j => (col n lambda C u v j - b j) ^ 2 / (col n lambda C u v j + b j)) m.
Proof.
  intros L B F. rewrite (dual_ext _ _ _ _ _ _ _ _ _ (cols_head_transposed n lambda C b (2 * lambda * w) u v)).
  rewrite !(dual_transposed n m).
  pose proof (rows_head_lowers_by_the_residual m n lambda (fun j i => C i j) b a v u L B w c F) as H.
  replace (sum (fun j => (col n lambda C u v j - b j) ^ 2 / (col n lambda C u v j + b j)) m)
    with (sum (fun j => (row n lambda (fun j i => C i j) v u j - b j) ^ 2
                        / (row n lambda (fun j i => C i j) v u j + b j)) m); [lra|].
  apply sum_eq; intros j _. now rewrite col_mass.
Qed.

(** *** Both heads with gamma = lambda omega: half way between the two heads with 2 lambda omega, and the dual is convex. *)
Lemma exp_midpoint (x y : R) : exp ((x + y) / 2) <= (exp x + exp y) / 2.
Proof.
  assert (X : exp x = exp (x / 2) * exp (x / 2)) by (rewrite <- exp_plus; f_equal; field).
  assert (Y : exp y = exp (y / 2) * exp (y / 2)) by (rewrite <- exp_plus; f_equal; field).
  replace ((x + y) / 2) with (x / 2 + y / 2) by field. rewrite exp_plus, X, Y.
  pose proof (Rle_0_sqr (exp (x / 2) - exp (y / 2))). unfold Rsqr in *. lra.
Qed.

Lemma dual_midpoint n m lambda C a b u v u' v' : 0 < lambda ->
  dual n m lambda C a b (fun i => (u i + u' i) / 2) (fun j => (v j + v' j) / 2)
  <= (dual n m lambda C a b u v + dual n m lambda C a b u' v') / 2.
Proof.
  intros L. unfold dual.
  assert (M : sum (row m lambda C (fun i => (u i + u' i) / 2) (fun j => (v j + v' j) / 2)) n
              <= / 2 * (sum (row m lambda C u v) n + sum (row m lambda C u' v') n)).
  { rewrite <- plus_sum, <- sum_scale. apply sum_Rle; intros i _. unfold row. rewrite <- plus_sum, <- sum_scale.
    apply sum_Rle; intros j _. unfold plan.
    replace (((u i + u' i) / 2 + (v j + v' j) / 2 - C i j) / lambda - 1)
      with ((((u i + v j - C i j) / lambda - 1) + ((u' i + v' j - C i j) / lambda - 1)) / 2) by (field; lra).
    eapply Rle_trans; [apply exp_midpoint | right; field]. }
  assert (Half : forall (c x y : nat -> R) k, sum (fun i => c i * ((x i + y i) / 2)) k
                 = / 2 * (sum (fun i => c i * x i) k + sum (fun i => c i * y i) k)).
  { intros. rewrite <- plus_sum, <- sum_scale. apply sum_eq; intros; field. }
  rewrite !Half. nra.
Qed.

Theorem both_heads_lower_by_the_residual n m lambda C a b u v w c : 0 < lambda ->
  (forall i, (i <= n)%nat -> 0 < a i) -> (forall j, (j <= m)%nat -> 0 < b j) -> fall_constant w c ->
  dual n m lambda C a b (rows_head m lambda C a (lambda * w) u v) (cols_head n lambda C b (lambda * w) u v)
  <= dual n m lambda C a b u v
     - lambda * c / 2 * (sum (fun i => (row m lambda C u v i - a i) ^ 2 / (row m lambda C u v i + a i)) n
                         + sum (fun j => (col n lambda C u v j - b j) ^ 2 / (col n lambda C u v j + b j)) m).
Proof.
  intros L A B F.
  pose proof (rows_head_lowers_by_the_residual n m lambda C a b u v L A w c F) as R.
  pose proof (cols_head_lowers_by_the_residual n m lambda C a b u v w c L B F) as K.
  pose proof (dual_midpoint n m lambda C a b (rows_head m lambda C a (2 * lambda * w) u v) v u
    (cols_head n lambda C b (2 * lambda * w) u v) L) as D.
  replace (dual n m lambda C a b (rows_head m lambda C a (lambda * w) u v) (cols_head n lambda C b (lambda * w) u v))
    with (dual n m lambda C a b (fun i => (rows_head m lambda C a (2 * lambda * w) u v i + u i) / 2)
      (fun j => (v j + cols_head n lambda C b (2 * lambda * w) u v j) / 2)); [lra|].
  assert (U : forall i, (rows_head m lambda C a (2 * lambda * w) u v i + u i) / 2
      = rows_head m lambda C a (lambda * w) u v i) by (intros i; unfold rows_head; set (q := (row m lambda C u v i - a i) / _); field).
  assert (V : forall j, (v j + cols_head n lambda C b (2 * lambda * w) u v j) / 2
      = cols_head n lambda C b (lambda * w) u v j) by (intros j; unfold cols_head; set (q := (col n lambda C u v j - b j) / _); field).
  rewrite (dual_ext _ _ _ _ _ _ _ _ _ V), dual_transposed, (dual_ext _ _ _ _ _ _ _ _ _ U), <- dual_transposed. reflexivity.
Qed.

(** The residual is positive unless all sums are right. *)
Lemma residual_pos (S a : nat -> R) n : (forall i, (i <= n)%nat -> 0 < S i) -> (forall i, (i <= n)%nat -> 0 < a i) ->
  0 <= sum (fun i => (S i - a i) ^ 2 / (S i + a i)) n /\
  ((exists i, (i <= n)%nat /\ S i <> a i) -> 0 < sum (fun i => (S i - a i) ^ 2 / (S i + a i)) n).
Proof.
  intros HS A. set (r := fun i => - ((S i - a i) ^ 2 / (S i + a i))).
  assert (E : sum (fun i => (S i - a i) ^ 2 / (S i + a i)) n = - sum r n)
    by (rewrite <- (Rmult_1_l (sum r n)), Ropp_mult_distr_l, <- sum_scale; apply sum_eq; intros; unfold r; ring).
  assert (N : forall i, (i <= n)%nat -> r i <= 0).
  { intros i I. specialize (HS i I). specialize (A i I). unfold r. apply Ropp_le_cancel. rewrite Ropp_involutive, Ropp_0.
    apply Rmult_le_pos; [apply pow2_ge_0 | left; apply Rinv_0_lt_compat; lra]. }
  rewrite E. split; [pose proof (sum_below r n N); lra|]. intros [i [I D]].
  assert (r i < 0); [|pose proof (sum_below_strict r n i N I H); lra].
  specialize (HS i I). specialize (A i I). apply Ropp_lt_cancel. unfold r. rewrite Ropp_involutive, Ropp_0.
  apply Rmult_lt_0_compat; [pose proof (Rsqr_pos_lt (S i - a i)); unfold Rsqr in *; nra | apply Rinv_0_lt_compat; lra].
Qed.

(** 5.6, the paper's own layers: both heads with gamma = lambda omega.  The dual does not rise for any omega up to 1.884013,
    and falls unless the marginals are right.  It falls by lambda c_omega/2 times the residual, c_omega being the largest fall
    constant (c_omega in Constants.v); the numbers below are its shares of c_1, c_1.5 and c_1.8. *)
Corollary both_heads_lower_the_dual w : 0 < w <= 1884013 / 1000000 -> exists c,
  (0 < c /\ fall_constant w c /\ forall c', fall_constant w c' -> c' <= c) /\
  (w <= 1 -> w * (1 - exp (-2)) <= c) /\ (w <= 3 / 2 -> w / 2 <= c) /\ (w <= 9 / 5 -> w / (9 / 5) * (237355 / 1000000) <= c) /\
  forall n m lambda C a b u v, 0 < lambda -> (forall i, (i <= n)%nat -> 0 < a i) -> (forall j, (j <= m)%nat -> 0 < b j) ->
  let after := dual n m lambda C a b (rows_head m lambda C a (lambda * w) u v) (cols_head n lambda C b (lambda * w) u v) in
  after <= dual n m lambda C a b u v
    - lambda * c / 2 * (sum (fun i => (row m lambda C u v i - a i) ^ 2 / (row m lambda C u v i + a i)) n
                        + sum (fun j => (col n lambda C u v j - b j) ^ 2 / (col n lambda C u v j + b j)) m) /\
  ((exists i, (i <= n)%nat /\ row m lambda C u v i <> a i) \/ (exists j, (j <= m)%nat /\ col n lambda C u v j <> b j) ->
   after < dual n m lambda C a b u v).
Proof.
  intros W. destruct (c_omega w ltac:(lra)) as [c [P [F Largest]]]. exists c.
  split; [now split | split; [|split; [|split]]]; [intros Hw; apply Largest .. |].
  - replace (w * (1 - exp (-2))) with (w / 1 * (1 - exp (-2))) by field. apply c_below; [lra | apply c_1].
  - replace (w / 2) with (w / (3 / 2) * (3 / 4)) by field. apply c_below; [lra | apply c_1_5].
  - apply c_below; [lra | apply c_1_8].
  - intros n m lambda C a b u v L A B after.
    pose proof (both_heads_lower_by_the_residual n m lambda C a b u v w c L A B F) as D. fold after in D.
    split; [exact D|].
    destruct (residual_pos (row m lambda C u v) a n) as [R0 R1]; [intros; apply sum_pos; intros; apply exp_pos | assumption |].
    destruct (residual_pos (col n lambda C u v) b m) as [K0 K1]; [intros; apply sum_pos; intros; apply exp_pos | assumption |].
    assert (0 < lambda * c / 2) by nra. intros [X|X]; [specialize (R1 X) | specialize (K1 X)]; nra.
Qed.
