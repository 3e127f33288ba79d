(** Theorem A's inequality: how far the potentials are from a solution, by how wrong the marginals are.

    (us, vs) is a solution, e = (u - us)/lambda, f = (v - vs)/lambda, z_i = log(S_i/a_i), z'_j = log(S'_j/b_j).  Then
        osc e <= (osc z + eta osc z')/(1 - eta^2),   osc f <= (osc z' + eta osc z)/(1 - eta^2),   eta = tanh(phi/4),
    where phi bounds the logarithms of the cross ratios of e^{-C/lambda}.  Any n and m, any weights, any costs. *)
From Coq Require Import Reals Lra Lia.
From OTformer Require Import Tanh Layer Birkhoff.
Open Scope R_scope.

(** *** The oscillation of a finite list of numbers, its maximum minus its minimum. *)
Fixpoint top (f : nat -> R) (n : nat) : R := match n with O => f O | S k => Rmax (top f k) (f n) end.
Definition osc (f : nat -> R) (n : nat) : R := top f n + top (fun i => - f i) n.

Lemma top_above f n i : (i <= n)%nat -> f i <= top f n.
Proof.
  induction n as [|n IH]; intros I; simpl; [replace i with O by lia; lra|].
  destruct (Nat.eq_dec i (S n)) as [->|N]; [apply Rmax_r|].
  eapply Rle_trans; [apply IH; lia | apply Rmax_l].
Qed.

Lemma top_attained f n : exists i, (i <= n)%nat /\ top f n = f i.
Proof.
  induction n as [|n [i [I E]]]; simpl; [now exists O|].
  unfold Rmax; destruct Rle_dec; [exists (S n) | exists i]; split; auto; lia.
Qed.

Lemma osc_above f n i k : (i <= n)%nat -> (k <= n)%nat -> f i - f k <= osc f n.
Proof.
  intros I K. unfold osc. pose proof (top_above f n i I). pose proof (top_above (fun i => - f i) n k K) as B.
  simpl in B. lra.
Qed.

Lemma osc_below f n d : (forall i k, (i <= n)%nat -> (k <= n)%nat -> f i - f k <= d) -> osc f n <= d.
Proof.
  intros H. unfold osc. destruct (top_attained f n) as [i [I ->]], (top_attained (fun i => - f i) n) as [k [K ->]].
  specialize (H i k I K). lra.
Qed.

Lemma osc_pos f n : 0 <= osc f n.
Proof. pose proof (osc_above f n 0 0 ltac:(lia) ltac:(lia)). lra. Qed.

(** *** eta. *)
Definition eta (phi : R) : R := tanh (phi / 4).

Lemma eta_root phi : eta phi = (exp (phi / 2) - 1) / (exp (phi / 2) + 1).
Proof.
  unfold eta. rewrite tanh_exp. replace (2 * (phi / 4)) with (phi / 2) by field.
  field. pose proof (exp_pos (phi / 2)); lra.
Qed.

Lemma eta_range phi : 0 <= phi -> 0 <= eta phi < 1.
Proof.
  intros H. unfold eta. split; [|apply tanh_bounds].
  replace 0 with (tanh 0); [apply tanh_increasing; lra|].
  rewrite tanh_exp, Rmult_0_r, exp_0. field.
Qed.

(** *** One side: osc e <= osc z + eta osc f.  k is a matrix whose rows, divided by a, sum to 1. *)
Lemma one_side n m (k : nat -> nat -> R) (a e f z : nat -> R) phi : 0 <= phi ->
  (forall i j, (i <= n)%nat -> (j <= m)%nat -> 0 < k i j) ->
  (forall i, (i <= n)%nat -> sum (k i) m = a i) ->
  (forall i l j h, (i <= n)%nat -> (l <= n)%nat -> (j <= m)%nat -> (h <= m)%nat ->
     k i j * k l h <= exp phi * (k i h * k l j)) ->
  (forall i, (i <= n)%nat -> z i = ln (sum (fun j => k i j * exp (e i + f j)) m / a i)) ->
  osc e n <= osc z n + eta phi * osc f m.
Proof.
  intros Phi Pos Row Cross Z. apply osc_below; intros i l I L.
  set (p := fun i j => k i j / a i).
  assert (A : forall i, (i <= n)%nat -> 0 < a i) by (intros r Hr; rewrite <- Row by assumption; apply sum_pos; auto).
  assert (P : forall i j, (i <= n)%nat -> (j <= m)%nat -> 0 < p i j) by (intros; apply Rdiv_lt_0_compat; auto).
  assert (Sp : forall i, (i <= n)%nat -> sum (p i) m = 1).
  { intros r Hr. pose proof (A r Hr). transitivity (/ a r * sum (k r) m); [|rewrite Row by assumption; apply Rinv_l; lra].
    rewrite <- sum_scale. apply sum_eq; intros; unfold p, Rdiv; ring. }
  assert (E : forall i, (i <= n)%nat -> e i = z i - ln (sum (fun j => p i j * exp (f j)) m)).
  { intros r Hr. rewrite Z by assumption. pose proof (A r Hr).
    replace (sum (fun j => k r j * exp (e r + f j)) m / a r) with (exp (e r) * sum (fun j => p r j * exp (f j)) m).
    - rewrite ln_mult, ln_exp; [ring | apply exp_pos |].
      apply sum_pos; intros j J. apply Rmult_lt_0_compat; [now apply P | apply exp_pos].
    - unfold Rdiv. rewrite (Rmult_comm (sum _ _)), <- !sum_scale. apply sum_eq; intros.
      rewrite exp_plus. unfold p, Rdiv. ring. }
  assert (B : ln (sum (fun j => p l j * exp (f j)) m) - ln (sum (fun j => p i j * exp (f j)) m) <= eta phi * osc f m).
  { rewrite eta_root. unfold osc.
    replace (top f m + top (fun j => - f j) m) with (top f m - - top (fun j => - f j) m) by ring.
    apply birkhoff; auto.
    - replace 1 with (exp 0) by apply exp_0.
      destruct Phi as [Phi| <-]; [left; apply exp_increasing; lra | right; f_equal; lra].
    - intros j h J H. rewrite <- exp_plus. replace (phi / 2 + phi / 2) with phi by field.
      pose proof (A i I). pose proof (A l L). specialize (Cross l i j h L I J H). unfold p.
      replace (k l j / a l * (k i h / a i)) with (/ a l * / a i * (k l j * k i h)) by (field; lra).
      replace (exp phi * (k l h / a l * (k i j / a i))) with (/ a l * / a i * (exp phi * (k l h * k i j))) by (field; lra).
      apply Rmult_le_compat_l; [|assumption].
      left; apply Rmult_lt_0_compat; now apply Rinv_0_lt_compat.
    - intros j J. pose proof (top_above f m j J). pose proof (top_above (fun j => - f j) m j J) as T. simpl in T. lra. }
  rewrite (E i I), (E l L). pose proof (osc_above z n i l I L). lra.
Qed.

(** Two such inequalities are solved for one of the oscillations. *)
Lemma solve_two eta x y s t : 0 <= eta < 1 -> x <= s + eta * y -> y <= t + eta * x -> x <= (s + eta * t) / (1 - eta * eta).
Proof.
  intros H X Y. apply Rmult_le_reg_r with (1 - eta * eta); [nra|].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l by nra. nra.
Qed.

Section TheoremA.
Variables (n m : nat) (lambda phi : R) (C : nat -> nat -> R) (a b u v us vs : nat -> R).
Hypothesis Lambda : 0 < lambda.
Hypothesis Phi : 0 <= phi.
(** The logarithms of the cross ratios of e^{-C/lambda} are at most phi. *)
Hypothesis Cross : forall i l j h, (i <= n)%nat -> (l <= n)%nat -> (j <= m)%nat -> (h <= m)%nat ->
  C i h + C l j - C i j - C l h <= lambda * phi.
(** (us, vs) is a solution: its plan has the marginals a and b. *)
Hypothesis Rows : forall i, (i <= n)%nat -> row m lambda C us vs i = a i.
Hypothesis Cols : forall j, (j <= m)%nat -> col n lambda C us vs j = b j.

Let e (i : nat) : R := (u i - us i) / lambda.
Let f (j : nat) : R := (v j - vs j) / lambda.
Let z (i : nat) : R := ln (row m lambda C u v i / a i).
Let z' (j : nat) : R := ln (col n lambda C u v j / b j).

Lemma plan_moves i j : plan lambda C u v i j = plan lambda C us vs i j * exp (e i + f j).
Proof. unfold plan, e, f. rewrite <- exp_plus. f_equal. field. lra. Qed.

Lemma plan_cross i l j h : (i <= n)%nat -> (l <= n)%nat -> (j <= m)%nat -> (h <= m)%nat ->
  plan lambda C us vs i j * plan lambda C us vs l h <= exp phi * (plan lambda C us vs i h * plan lambda C us vs l j).
Proof.
  intros I L J H. specialize (Cross i l j h I L J H). unfold plan. rewrite <- !exp_plus.
  match goal with |- exp ?x <= exp ?y => assert (x <= y) as [G|G] end.
  { apply Rmult_le_reg_r with lambda; [assumption|]. field_simplify; lra. }
  - left; now apply exp_increasing.
  - rewrite G; lra.
Qed.

Theorem theorem_A :
  osc e n <= (osc z n + eta phi * osc z' m) / (1 - eta phi * eta phi) /\
  osc f m <= (osc z' m + eta phi * osc z n) / (1 - eta phi * eta phi).
Proof.
  assert (X : osc e n <= osc z n + eta phi * osc f m).
  { apply (one_side n m (plan lambda C us vs) a); auto; [intros; apply exp_pos | exact plan_cross |].
    intros i I. unfold z, row. do 2 f_equal. apply sum_eq; intros; apply plan_moves. }
  assert (Y : osc f m <= osc z' m + eta phi * osc e n).
  { apply (one_side m n (fun j i => plan lambda C us vs i j) b); auto; [intros; apply exp_pos | |].
    - intros j h i l J H I L. pose proof (plan_cross i l j h I L J H). lra.
    - intros j J. unfold z', col. do 2 f_equal. apply sum_eq; intros. rewrite plan_moves. f_equal. f_equal. ring. }
  pose proof (eta_range phi Phi) as E. pose proof (osc_pos z n). pose proof (osc_pos z' m).
  assert (0 <= eta phi * osc z n) by (apply Rmult_le_pos; lra). assert (0 <= eta phi * osc z' m) by (apply Rmult_le_pos; lra).
  split; (eapply Rle_trans; [eapply solve_two; eassumption|]);
    (apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; nra | lra]).
Qed.
End TheoremA.

(** For costs in [0, c] the cross ratios are at most e^{2c/lambda}, and 1/(1 - eta) = (1 + e^{c/lambda})/2. *)
Corollary theorem_A_for_bounded_costs n m lambda c C a b u v us vs d : 0 < lambda ->
  (forall i j, (i <= n)%nat -> (j <= m)%nat -> 0 <= C i j <= c) ->
  (forall i, (i <= n)%nat -> row m lambda C us vs i = a i) -> (forall j, (j <= m)%nat -> col n lambda C us vs j = b j) ->
  osc (fun i => ln (row m lambda C u v i / a i)) n <= d -> osc (fun j => ln (col n lambda C u v j / b j)) m <= d ->
  osc (fun i => (u i - us i) / lambda) n <= (1 + exp (c / lambda)) / 2 * d /\
  osc (fun j => (v j - vs j) / lambda) m <= (1 + exp (c / lambda)) / 2 * d.
Proof.
  intros L Cost Rows Cols Z Z'.
  assert (0 <= c) by (specialize (Cost 0%nat 0%nat ltac:(lia) ltac:(lia)); lra).
  assert (Phi : 0 <= 2 * c / lambda) by (apply Rmult_le_pos; [lra | left; now apply Rinv_0_lt_compat]).
  assert (Cross : forall i l j h, (i <= n)%nat -> (l <= n)%nat -> (j <= m)%nat -> (h <= m)%nat ->
    C i h + C l j - C i j - C l h <= lambda * (2 * c / lambda)).
  { intros i l j h I K J H'. replace (lambda * (2 * c / lambda)) with (2 * c) by (field; lra).
    pose proof (Cost i j I J); pose proof (Cost i h I H'); pose proof (Cost l j K J); pose proof (Cost l h K H'). lra. }
  destruct (theorem_A n m lambda (2 * c / lambda) C a b u v us vs L Phi Cross Rows Cols) as [E F].
  pose proof (eta_range _ Phi) as R. set (q := eta (2 * c / lambda)) in *.
  assert (Q : (1 + exp (c / lambda)) / 2 * (1 - q) = 1).
  { unfold q. rewrite eta_root. replace (2 * c / lambda / 2) with (c / lambda) by (field; lra).
    field. pose proof (exp_pos (c / lambda)); lra. }
  assert (W : forall x y, x <= d -> y <= d -> (x + q * y) / (1 - q * q) <= (1 + exp (c / lambda)) / 2 * d).
  { intros x y X Y. apply Rmult_le_reg_r with (1 - q * q); [nra|]. unfold Rdiv at 1. rewrite Rmult_assoc, Rinv_l by nra.
    replace ((1 + exp (c / lambda)) / 2 * d * (1 - q * q))
      with ((1 + exp (c / lambda)) / 2 * (1 - q) * (d * (1 + q))) by ring.
    rewrite Q. nra. }
  split; eapply Rle_trans; try eassumption; apply W; assumption.
Qed.
