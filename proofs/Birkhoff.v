(** Birkhoff's contraction for a stochastic matrix, for any number of points: what Theorem A needs.

    Let p and q be positive, each of sum 1, with cross ratios p_j q_l/(p_l q_j) <= k^2.  Then for lo <= f <= hi
        log sum_j p_j e^{f_j} - log sum_j q_j e^{f_j} <= (k - 1)/(k + 1) (hi - lo).
    Proof: along r f, 0 <= r <= 1, the left side has the derivative sum_j (P_j - Q_j) f_j, with P and Q proportional to
    p e^{r f} and q e^{r f}.  Their cross ratios are those of p and q, so they differ by at most (k - 1)/(k + 1) in total
    variation. *)
From Coq Require Import Reals Lra Lia.
From Coquelicot Require Import Coquelicot.
From OTformer Require Import Tanh Layer.
Open Scope R_scope.

Notation sum f n := (sum_f_R0 f n).

Lemma sum_scale (c : R) (f : nat -> R) (n : nat) : sum (fun j => c * f j) n = c * sum f n.
Proof. rewrite scal_sum. apply sum_eq; intros; ring. Qed.

(** *** Total variation. *)
Lemma odds (k a b : R) : 1 <= k -> 0 <= b <= 1 -> 0 <= a <= 1 ->
  a * (1 - b) <= k * k * (b * (1 - a)) -> a - b <= (k - 1) / (k + 1).
Proof.
  intros K B A H.
  set (x := sqrt (a * (1 - b))). set (y := sqrt (b * (1 - a))).
  assert (X : x * x = a * (1 - b)) by (apply sqrt_sqrt; nra).
  assert (Y : y * y = b * (1 - a)) by (apply sqrt_sqrt; nra).
  assert (X0 : 0 <= x) by apply sqrt_pos. assert (Y0 : 0 <= y) by apply sqrt_pos.
  assert (XY : x <= k * y) by (apply Rsqr_incr_0; unfold Rsqr; nra).
  assert (S : (x + y) * (x + y) <= 1).
  { assert (4 * (x * y) * (x * y) <= (1 - a * (1 - b) - b * (1 - a)) * (1 - a * (1 - b) - b * (1 - a))).
    { replace (4 * (x * y) * (x * y)) with (4 * (x * x) * (y * y)) by ring. rewrite X, Y.
      pose proof (Rle_0_sqr (1 - a - b)). unfold Rsqr in *. nra. }
    assert (2 * (x * y) <= 1 - a * (1 - b) - b * (1 - a)); [|nra].
    apply Rsqr_incr_0; unfold Rsqr; nra. }
  apply Rmult_le_reg_r with (k + 1); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra.
  replace (a - b) with ((x - y) * (x + y)) by nra.
  assert ((x - y) * (k + 1) <= (k - 1) * (x + y)) by nra. nra.
Qed.

Section TotalVariation.
Variables (n : nat) (P Q f : nat -> R) (k lo hi : R).
Hypothesis K : 1 <= k.
Hypothesis Pos : forall j, (j <= n)%nat -> 0 < P j /\ 0 < Q j.
Hypothesis Sums : sum P n = 1 /\ sum Q n = 1.
Hypothesis Cross : forall j l, (j <= n)%nat -> (l <= n)%nat -> P j * Q l <= k * k * (P l * Q j).
Hypothesis Range : forall j, (j <= n)%nat -> lo <= f j <= hi.

(** 1 where P is the larger, 0 elsewhere. *)
Let s (j : nat) : R := if Rlt_dec (Q j) (P j) then 1 else 0.
Let a : R := sum (fun j => s j * P j) n.
Let b : R := sum (fun j => s j * Q j) n.

Lemma s01 (j : nat) : 0 <= s j <= 1.
Proof. unfold s; destruct Rlt_dec; lra. Qed.

Lemma part (X : nat -> R) : sum X n = 1 -> sum (fun l => (1 - s l) * X l) n = 1 - sum (fun l => s l * X l) n.
Proof.
  intros E. transitivity (sum X n - sum (fun l => s l * X l) n); [rewrite <- minus_sum; apply sum_eq; intros; ring | lra].
Qed.

Lemma part_range (X : nat -> R) : (forall j, (j <= n)%nat -> 0 < X j) -> sum X n = 1 -> 0 <= sum (fun l => s l * X l) n <= 1.
Proof.
  intros H E. split.
  - rewrite <- (Rmult_0_l (sum X n)), <- sum_scale. apply sum_Rle; intros j J. pose proof (s01 j). specialize (H j J). nra.
  - apply Rle_trans with (sum X n); [|lra]. apply sum_Rle; intros j J. pose proof (s01 j). specialize (H j J). nra.
Qed.

Lemma odds_of_parts : a * (1 - b) <= k * k * (b * (1 - a)).
Proof.
  assert (One : forall j, (j <= n)%nat -> P j * (1 - b) <= k * k * (Q j * (1 - a))).
  { intros j J. unfold a, b. rewrite <- (part P), <- (part Q) by apply Sums.
    rewrite <- Rmult_assoc, <- !sum_scale. apply sum_Rle; intros l L.
    pose proof (s01 l). pose proof (Cross j l J L). nra. }
  replace (a * (1 - b)) with (sum (fun j => (1 - b) * (s j * P j)) n) by (rewrite sum_scale; unfold a; ring).
  replace (k * k * (b * (1 - a))) with (sum (fun j => k * k * (1 - a) * (s j * Q j)) n)
    by (rewrite sum_scale; unfold b; ring).
  apply sum_Rle; intros j J. pose proof (s01 j). pose proof (One j J). nra.
Qed.

Lemma total_variation : sum (fun j => (P j - Q j) * f j) n <= (k - 1) / (k + 1) * (hi - lo).
Proof.
  assert (D : a - b <= (k - 1) / (k + 1)).
  { apply odds; [exact K | | | exact odds_of_parts]; apply part_range; try apply Sums; intros j J; apply (Pos j J). }
  assert (lo <= hi) by (specialize (Range 0%nat ltac:(lia)); lra).
  replace (sum (fun j => (P j - Q j) * f j) n) with (sum (fun j => (P j - Q j) * (f j - lo)) n).
  2: { replace (sum (fun j => (P j - Q j) * (f j - lo)) n)
         with (sum (fun j => (P j - Q j) * f j) n - lo * (sum P n - sum Q n)).
       - destruct Sums as [-> ->]. ring.
       - rewrite <- minus_sum, <- sum_scale, <- minus_sum. apply sum_eq; intros; ring. }
  apply Rle_trans with ((hi - lo) * (a - b)); [|nra].
  unfold a, b. rewrite <- minus_sum, <- sum_scale. apply sum_Rle; intros j J.
  specialize (Range j J). unfold s; destruct Rlt_dec; nra.
Qed.
End TotalVariation.

(** *** The path r f. *)
Definition mean (p f : nat -> R) (n : nat) (r : R) : R := sum (fun j => p j * exp (r * f j)) n.

Lemma mean_pos p f n r : (forall j, (j <= n)%nat -> 0 < p j) -> 0 < mean p f n r.
Proof. intros H. apply sum_pos; intros j J. apply Rmult_lt_0_compat; [now apply H | apply exp_pos]. Qed.

Lemma mean_derive p f n r : is_derive (mean p f n) r (sum (fun j => p j * f j * exp (r * f j)) n).
Proof.
  unfold mean. induction n as [|n IH]; simpl.
  - auto_derive; [exact I | ring].
  - apply (is_derive_plus (fun r => sum (fun j => p j * exp (r * f j)) n)); [exact IH|].
    auto_derive; [exact I | ring].
Qed.

Lemma mean_zero p f n : mean p f n 0 = sum p n.
Proof. apply sum_eq; intros. rewrite Rmult_0_l, exp_0; ring. Qed.

Theorem birkhoff n p q f k lo hi : 1 <= k ->
  (forall j, (j <= n)%nat -> 0 < p j /\ 0 < q j) -> sum p n = 1 -> sum q n = 1 ->
  (forall j l, (j <= n)%nat -> (l <= n)%nat -> p j * q l <= k * k * (p l * q j)) ->
  (forall j, (j <= n)%nat -> lo <= f j <= hi) ->
  ln (sum (fun j => p j * exp (f j)) n) - ln (sum (fun j => q j * exp (f j)) n) <= (k - 1) / (k + 1) * (hi - lo).
Proof.
  intros K Pos Sp Sq Cross Range.
  assert (Pp : forall r, 0 < mean p f n r) by (intros; apply mean_pos; intros j J; apply (Pos j J)).
  assert (Pq : forall r, 0 < mean q f n r) by (intros; apply mean_pos; intros j J; apply (Pos j J)).
  set (P := fun r j => p j * exp (r * f j) / mean p f n r).
  set (Q := fun r j => q j * exp (r * f j) / mean q f n r).
  destruct (MVT_cor2 (fun r => ln (mean p f n r) - ln (mean q f n r)) (fun r => sum (fun j => (P r j - Q r j) * f j) n) 0 1)
    as [r [E _]]; [lra | |].
  - intros r _. apply is_derive_Reals.
    replace (sum (fun j => (P r j - Q r j) * f j) n)
      with (sum (fun j => p j * f j * exp (r * f j)) n * / mean p f n r
            - sum (fun j => q j * f j * exp (r * f j)) n * / mean q f n r).
    + apply (is_derive_minus (fun r => ln (mean p f n r))); apply (is_derive_comp ln); try apply mean_derive;
        now apply is_derive_ln.
    + rewrite !(Rmult_comm (sum _ _)), <- !sum_scale, <- minus_sum. apply sum_eq; intros j _. unfold P, Q. field.
      split; apply Rgt_not_eq; [apply Pq | apply Pp].
  - rewrite !mean_zero, Sp, Sq, ln_1 in E.
    replace (sum (fun j => p j * exp (f j)) n) with (mean p f n 1) by (apply sum_eq; intros; now rewrite Rmult_1_l).
    replace (sum (fun j => q j * exp (f j)) n) with (mean q f n 1) by (apply sum_eq; intros; now rewrite Rmult_1_l).
    replace (ln (mean p f n 1) - ln (mean q f n 1)) with (sum (fun j => (P r j - Q r j) * f j) n) by lra.
    specialize (Pp r). specialize (Pq r).
    assert (Ip : 0 < / mean p f n r) by now apply Rinv_0_lt_compat.
    assert (Iq : 0 < / mean q f n r) by now apply Rinv_0_lt_compat.
    assert (0 <= (k - 1) / (k + 1) * (hi - lo)).
    { specialize (Range 0%nat ltac:(lia)). repeat apply Rmult_le_pos; try lra. left; apply Rinv_0_lt_compat; lra. }
    enough (sum (fun j => (P r j - Q r j) * f j) n <= (k - 1) / (k + 1) * (hi - lo)) by lra.
    apply total_variation; try assumption.
    + intros j J. destruct (Pos j J). pose proof (exp_pos (r * f j)). unfold P, Q, Rdiv.
      split; repeat apply Rmult_lt_0_compat; assumption.
    + unfold P, Q, Rdiv. split.
      * transitivity (/ mean p f n r * mean p f n r); [|apply Rinv_l; lra]. unfold mean at 3. rewrite <- sum_scale.
        apply sum_eq; intros; ring.
      * transitivity (/ mean q f n r * mean q f n r); [|apply Rinv_l; lra]. unfold mean at 3. rewrite <- sum_scale.
        apply sum_eq; intros; ring.
    + intros j l J L. specialize (Cross j l J L). unfold P, Q, Rdiv.
      pose proof (exp_pos (r * f j)). pose proof (exp_pos (r * f l)).
      set (c := exp (r * f j) * exp (r * f l) * / mean p f n r * / mean q f n r).
      assert (0 < c) by (unfold c; repeat apply Rmult_lt_0_compat; assumption).
      replace (p j * exp (r * f j) * / mean p f n r * (q l * exp (r * f l) * / mean q f n r))
        with (c * (p j * q l)) by (unfold c; ring).
      replace (k * k * (p l * exp (r * f l) * / mean p f n r * (q j * exp (r * f j) * / mean q f n r)))
        with (c * (k * k * (p l * q j))) by (unfold c; ring).
      apply Rmult_le_compat_l; lra.
Qed.
