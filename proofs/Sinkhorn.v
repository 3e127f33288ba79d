(** Theorem D (ii) of docs/limits.md: Sinkhorn's error on the list of TwoPoint.v, from both sides.
    A half-step makes the sums of one side exact; the rows are first. *)
From Coq Require Import Reals Lra Lia.
From Coquelicot Require Import Coquelicot.
From OTformer Require Import Layer Birkhoff Divergence TwoPoint.
Open Scope R_scope.

(** With the rows of [[a, d], [b, c]] exact, a half-step on the columns takes x = b - d to at most x/(1 + x). *)
Lemma gap_shrinks a b c d : 0 < a -> 0 < b -> 0 < c -> 0 < d -> a + d = 1 -> b + c = 1 -> d * b < a * c -> d < b ->
  0 < b / (b + a) - d / (d + c) <= (b - d) / (1 + (b - d)).
Proof.
  intros A B C D R1 R2 X Y. assert (a = 1 - d) as -> by lra. assert (c = 1 - b) as -> by lra.
  set (x := b - d). replace (b + (1 - d)) with (1 + x) by (unfold x; ring).
  replace (d + (1 - b)) with (1 - x) by (unfold x; ring).
  assert (H : 0 < x < 1) by (unfold x; lra). assert (S : b + d < 1) by nra.
  assert (E : b / (1 + x) - d / (1 - x) = x * (1 - (b + d)) / (1 - x) / (1 + x)) by (unfold x in *; field; lra).
  rewrite E. assert (0 < / (1 + x)) by (apply Rinv_0_lt_compat; lra). assert (0 < / (1 - x)) by (apply Rinv_0_lt_compat; lra).
  split; [repeat apply Rmult_lt_0_compat; lra|]. apply Rmult_le_compat_r; [lra|]. apply Rle_div_l; [lra|].
  apply Rmult_le_compat_l; unfold x; lra.
Qed.

Section Sinkhorn.
Variable lambda : R.
Hypothesis Lambda : 0 < lambda.
Notation entry := (plan lambda list_cost).
Definition exact_rows (x y : nat -> R) (i : nat) : R := x i - lambda * ln (row 1 lambda list_cost x y i).
Definition exact_cols (x y : nat -> R) (j : nat) : R := y j - lambda * ln (col 1 lambda list_cost x y j).

Lemma entry_of_exact_rows x y i j : entry (exact_rows x y) y i j = entry x y i j / row 1 lambda list_cost x y i.
Proof.
  pose proof (sum_pos (fun j => entry x y i j) 1 ltac:(intros; apply exp_pos)) as P. fold (row 1 lambda list_cost x y i) in P.
  unfold Rdiv at 1. rewrite <- (exp_ln _ P). unfold plan, exact_rows. rewrite <- exp_Ropp, <- exp_plus. f_equal. field. lra.
Qed.

Lemma entry_of_exact_cols x y i j : entry x (exact_cols x y) i j = entry x y i j / col 1 lambda list_cost x y j.
Proof.
  pose proof (sum_pos (fun i => entry x y i j) 1 ltac:(intros; apply exp_pos)) as P. fold (col 1 lambda list_cost x y j) in P.
  unfold Rdiv at 1. rewrite <- (exp_ln _ P). unfold plan, exact_cols. rewrite <- exp_Ropp, <- exp_plus. f_equal. field. lra.
Qed.

Variables (u v : nat -> nat -> R).
Hypothesis Start : forall i, u O i = 0 /\ v O i = 0.
Hypothesis Rows : forall k, Nat.even k = true -> u (S k) = exact_rows (u k) (v k) /\ v (S k) = v k.
Hypothesis Cols : forall k, Nat.even k = false -> v (S k) = exact_cols (u k) (v k) /\ u (S k) = u k.

(** D (ii), the lower bound. *)
Theorem error_of_sinkhorn_above k : (1 <= k)%nat -> 2 / (INR k + 1) - 2 * rho lambda ^ 2 * INR k
  <= list_error lambda (u k) (v k).
Proof.
  apply error_of_a_chain; try assumption. intros l. pose proof (entry_pos lambda (u l) (v l)) as P.
  pose proof (P 0 0)%nat as PA. pose proof (P 1 0)%nat as PB. pose proof (P 1 1)%nat as PC. pose proof (P 0 1)%nat as PD.
  assert (Q : forall a b c d, 0 < a -> 0 < b -> 0 < c -> 0 < d -> a / (a + d) / (b / (b + c)) <= Rmax (a / b) (1 + c / b)).
  { intros a b c d A B C D. eapply Rle_trans; [|apply Rmax_r].
    replace (a / (a + d) / (b / (b + c))) with (a / (a + d) * (1 + c / b)) by (field; lra).
    assert (0 < c / b) by now apply Rdiv_lt_0_compat. assert (a / (a + d) <= 1) by (apply Rle_div_l; lra). nra. }
  destruct (Nat.even l) eqn:E; [destruct (Rows l E) as [-> ->] | destruct (Cols l E) as [-> ->]]; split.
  - unfold alpha, kappa. rewrite !entry_of_exact_rows. now apply Q.
  - right. now destruct (entries lambda Lambda (exact_rows (u l) (v l)) (v l)) as [_ [->
      _]], (entries lambda Lambda (u l) (v l)) as [_ [-> _]].
  - unfold alpha, kappa. rewrite !entry_of_exact_cols. unfold col. simpl sum.
    rewrite (Rplus_comm (entry _ _ 0%nat 0%nat)), (Rplus_comm (entry _ _ 0%nat 1%nat)). now apply Q.
  - right. now destruct (entries lambda Lambda (u l) (exact_cols (u l) (v l))) as [->
      _], (entries lambda Lambda (u l) (v l)) as [-> _].
Qed.

(** The upper bound.  The gap x = M_21 - M_12 goes from at most 1/2 to at most x/(1 + x), and E is 2 x. *)
Definition gap (x y : nat -> R) : R := entry x y 1%nat 0%nat - entry x y 0%nat 1%nat.
Definition exact (side : bool) (x y : nat -> R) : Prop :=
  forall k, (k <= 1)%nat -> (if side then row 1 lambda list_cost x y k else col 1 lambda list_cost x y k) = 1.

Lemma line_pos x y i : 0 < row 1 lambda list_cost x y i /\ 0 < col 1 lambda list_cost x y i.
Proof. split; apply sum_pos; intros; apply exp_pos. Qed.

Lemma exact_after_a_half_step x y : exact true (exact_rows x y) y /\ exact false x (exact_cols x y).
Proof.
  split; intros k _.
  - pose proof (proj1 (line_pos x y k)). unfold row at 1. erewrite sum_eq by (intros; rewrite entry_of_exact_rows;
      reflexivity).
    rewrite (sum_eq _ (fun j => / row 1 lambda list_cost x y k * entry x y k j)) by (intros; field; lra).
    rewrite sum_scale. change (sum _ 1) with (row 1 lambda list_cost x y k). field. lra.
  - pose proof (proj2 (line_pos x y k)). unfold col at 1. erewrite sum_eq by (intros; rewrite entry_of_exact_cols;
      reflexivity).
    rewrite (sum_eq _ (fun i => / col 1 lambda list_cost x y k * entry x y i k)) by (intros; field; lra).
    rewrite sum_scale. change (sum _ 1) with (col 1 lambda list_cost x y k). field. lra.
Qed.

Lemma rho_below_one : 0 < rho lambda < 1.
Proof.
  unfold rho. split; [apply exp_pos|]. rewrite <- exp_0. apply exp_increasing. unfold Rdiv.
  pose proof (Rinv_0_lt_compat _ Lambda). lra.
Qed.

Lemma corner_products x y : entry x y 0%nat 1%nat * entry x y 1%nat 0%nat < entry x y 0%nat 0%nat * entry x y 1%nat 1%nat.
Proof.
  destruct (entries lambda Lambda x y) as [_ [_ D]]. pose proof (entry_pos lambda x y 1 0) as B.
  pose proof (entry_pos lambda x y 0 0). pose proof (entry_pos lambda x y 1 1).
  assert (E : entry x y 0%nat 1%nat * entry x y 1%nat 0%nat
    = rho lambda ^ 2 * (entry x y 0%nat 0%nat * entry x y 1%nat 1%nat)) by (rewrite D; unfold alpha, kappa; field; lra).
  rewrite E. pose proof rho_below_one. assert (rho lambda ^ 2 < 1) by nra.
  assert (0 < entry x y 0%nat 0%nat * entry x y 1%nat 1%nat) by now apply Rmult_lt_0_compat. nra.
Qed.

Lemma error_is_twice_the_gap side x y : exact side x y -> 0 < gap x y -> list_error lambda x y = 2 * gap x y.
Proof.
  intros E G. pose proof (E 0 ltac:(lia))%nat as E0. pose proof (E 1 ltac:(lia))%nat as E1. unfold gap in *.
  unfold list_error, gradient, ones. destruct side; unfold row, col in *; simpl sum in *;
    unfold Rabs; repeat destruct Rcase_abs; lra.
Qed.

Lemma gap_after k : exact (Nat.even k) (u (S k)) (v (S k)) /\ 0 < gap (u (S k)) (v (S k)) <= / (INR k + 2).
Proof.
  assert (Step : forall x z, 0 < x -> 0 < z -> x <= / z -> x / (1 + x) <= / (z + 1)).
  { intros x z X Z H. apply Rle_div_l; [lra|]. apply (Rmult_le_compat_l z) in H; [|lra]. rewrite Rinv_r in H by lra.
    apply Rmult_le_reg_l with (z + 1); [lra|]. rewrite <- Rmult_assoc, Rinv_r; lra. }
  induction k as [|k [E G]].
  - destruct (Rows 0 eq_refl) as [-> ->]. split; [apply exact_after_a_half_step|].
    destruct (start_at_one lambda Lambda u v Start) as [A K]. destruct (entries lambda Lambda (u O) (v O)) as [_ [_ D]].
    rewrite A, K, !Rmult_1_r in D. unfold gap. rewrite !entry_of_exact_rows. unfold row. simpl sum.
    pose proof (entry_pos lambda (u O) (v O) 1 0) as B. pose proof rho_below_one. unfold alpha in A. unfold kappa in K.
    set (a := entry (u O) (v O) 0%nat 0%nat) in *. set (b := entry (u O) (v O) 1%nat 0%nat) in *.
    set (c := entry (u O) (v O) 1%nat 1%nat) in *. set (r := rho lambda ^ 2) in *. assert (0 < r < 1) by (unfold r; nra).
    assert (a = b) as -> by (replace a with (a / b * b) by (field; lra); rewrite A; ring).
    assert (c = b) as -> by (replace c with (c / b * b) by (field; lra); rewrite K; ring).
    rewrite D. replace (b / (b + b) - r * b / (b + r * b)) with (/ 2 - r / (1 + r)) by (field; nra).
    assert (0 < r / (1 + r)) by (apply Rdiv_lt_0_compat; lra). assert (r / (1 + r) < / 2) by (apply Rlt_div_l; lra).
    simpl INR. rewrite Rplus_0_l. lra.
  - rewrite S_INR. replace (INR k + 1 + 2) with (INR k + 2 + 1) by ring. pose proof (pos_INR k).
    specialize (Step _ (INR k + 2) (proj1 G) ltac:(lra) (proj2 G)). pose proof (corner_products (u (S k)) (v (S k))) as X.
    pose proof (entry_pos lambda (u (S k)) (v (S k))) as P.
    pose proof (P 0 0)%nat as PA. pose proof (P 1 0)%nat as PB. pose proof (P 1 1)%nat as PC. pose proof (P 0 1)%nat as PD.
    pose proof (E 0 ltac:(lia))%nat as E0. pose proof (E 1 ltac:(lia))%nat as E1. unfold row, col in E0, E1.
    specialize (Rows (S k)). specialize (Cols (S k)). rewrite Nat.even_succ, <- Nat.negb_even in *.
    destruct (Nat.even k); simpl negb in *; [destruct (Cols eq_refl) as [-> ->] | destruct (Rows eq_refl) as [-> ->]];
      (split; [apply exact_after_a_half_step|]); unfold gap in *; simpl sum in *.
    + rewrite !entry_of_exact_cols. unfold col. simpl sum. rewrite (Rplus_comm (entry _ _ 0%nat 0%nat)).
      rewrite (Rplus_comm (entry _ _ 1%nat 0%nat)) in E1.
      destruct (gap_shrinks _ _ _ _ PA PB PC PD); try lra.
    + rewrite !entry_of_exact_rows. unfold row. simpl sum. rewrite (Rplus_comm (entry _ _ 0%nat 0%nat)).
      destruct (gap_shrinks _ _ _ _ PC PB PA PD); try lra.
Qed.

(** D (ii), the upper bound. *)
Theorem error_of_sinkhorn_below k : (1 <= k)%nat -> list_error lambda (u k) (v k) <= 2 / (INR k + 1).
Proof.
  destruct k as [|k]; [lia|]. intros _. destruct (gap_after k) as [E G].
  rewrite (error_is_twice_the_gap _ _ _ E (proj1 G)), S_INR.
  replace (INR k + 1 + 1) with (INR k + 2) by ring. unfold Rdiv. lra.
Qed.
End Sinkhorn.
