(** Theorem B of docs/theorems.md: what the divergence KL(P|M) = sum P log(P/M) - P + M has to do with the dual, with the
    marginals and with sum |P - M|; and Theorem G.2, the plan against the cost.  Any n and m, any positive weights, any
    costs; a solution (us, vs) is a hypothesis. *)
From Coq Require Import Reals Lra Lia.
From Coquelicot Require Import Coquelicot.
From OTformer Require Import Tanh Layer NonExpansive Birkhoff Dual.
Open Scope R_scope.

(** *** Numbers. *)
Definition excess (p q : R) : R := p * ln (p / q) - p + q.

Lemma ln_above (x : R) : 0 < x -> 1 - / x <= ln x.
Proof.
  intros X. pose proof (Rinv_0_lt_compat x X). pose proof (exp_ineq1_le (- ln x)) as E.
  rewrite <- ln_Rinv, exp_ln, ln_Rinv in E by assumption. lra.
Qed.

Lemma excess_nonneg p q : 0 < p -> 0 < q -> 0 <= excess p q.
Proof.
  intros P Q. pose proof (ln_above (p / q) ltac:(now apply Rdiv_lt_0_compat)) as L. unfold excess.
  replace (/ (p / q)) with (q / p) in L by (field; lra).
  assert (p * (q / p) = q) by (field; lra). nra.
Qed.

(** log t >= (t - 1)(5t + 1)/(2t(t + 2)): the difference is 0 at t = 1 and has the derivative (t - 1)^3/(t(t + 2))^2. *)
Lemma ln_pade t : 0 < t -> (t - 1) * (5 * t + 1) / (2 * t * (t + 2)) <= ln t.
Proof.
  intros T. set (f := fun t => ln t - (t - 1) * (5 * t + 1) / (2 * t * (t + 2))).
  set (f' := fun t => (t - 1) ^ 3 / (t * (t + 2)) ^ 2).
  assert (D : forall t, 0 < t -> derivable_pt_lim f t (f' t)).
  { intros x X. unfold f, f'.
    apply is_derive_Reals. auto_derive; [repeat split; [lra | nra] | field; lra]. }
  assert (F : f 1 = 0) by (unfold f; rewrite ln_1; field).
  assert (0 <= f t); [|unfold f in *; lra].
  assert (Q : forall c, 0 < c -> 0 < / (c * (c + 2)) ^ 2) by (intros; apply Rinv_0_lt_compat, pow_lt; nra).
  destruct (Rtotal_order t 1) as [L|[->|G]]; [|lra|].
  - destruct (MVT_cor2 f f' t 1 L) as [c [E C]]; [intros; apply D; lra|].
    specialize (Q c ltac:(lra)). assert (0 <= (1 - c) ^ 3) by (apply pow_le; lra).
    assert (f' c <= 0) by (unfold f', Rdiv; replace ((c - 1) ^ 3) with (- (1 - c) ^ 3) by ring; nra). nra.
  - destruct (MVT_cor2 f f' 1 t G) as [c [E C]]; [intros; apply D; lra|].
    specialize (Q c ltac:(lra)). assert (0 <= (c - 1) ^ 3) by (apply pow_le; lra).
    assert (0 <= f' c) by (unfold f', Rdiv; nra). nra.
Qed.

(** B.3, one entry. *)
Theorem pinsker_entry p q : 0 < p -> 0 < q -> 3 * (p - q) ^ 2 <= (2 * p + 4 * q) * excess p q.
Proof.
  intros P Q. pose proof (ln_pade (p / q) ltac:(now apply Rdiv_lt_0_compat)) as L. unfold excess.
  replace ((p / q - 1) * (5 * (p / q) + 1) / (2 * (p / q) * (p / q + 2)))
    with ((p - q) * (5 * p + q) / (2 * p * (p + 2 * q))) in L by (field; nra).
  apply Rle_trans with ((2 * p + 4 * q) * (p * ((p - q) * (5 * p + q) / (2 * p * (p + 2 * q))) - p + q)).
  - right. field. nra.
  - apply Rmult_le_compat_l; [lra|]. assert (p * ((p - q) * (5 * p + q) / (2 * p * (p + 2 * q))) <= p * ln (p / q)); [|lra].
    apply Rmult_le_compat_l; lra.
Qed.

(** *** Cauchy and Schwarz, without roots. *)
Lemma schwarz_two X x W w Y y : 0 <= W -> 0 <= w -> 0 <= Y -> 0 <= y ->
  X ^ 2 <= W * Y -> x ^ 2 <= w * y -> (X + x) ^ 2 <= (W + w) * (Y + y).
Proof.
  intros HW Hw HY Hy A B.
  assert (2 * (X * x) <= W * y + w * Y); [|nra].
  assert (P : 0 <= W * y) by nra. assert (Q : 0 <= w * Y) by nra.
  assert ((X * x) ^ 2 <= W * y * (w * Y)).
  { replace ((X * x) ^ 2) with (X ^ 2 * x ^ 2) by ring. replace (W * y * (w * Y)) with (W * Y * (w * y)) by ring.
    apply Rmult_le_compat; try assumption; apply pow2_ge_0. }
  pose proof (pow2_ge_0 (W * y - w * Y)).
  apply Rsqr_incr_0_var; [unfold Rsqr; nra | lra].
Qed.

Lemma schwarz (x w y : nat -> R) n :
  (forall k, (k <= n)%nat -> 0 <= w k /\ 0 <= y k /\ x k ^ 2 <= w k * y k) ->
  0 <= sum w n /\ 0 <= sum y n /\ sum x n ^ 2 <= sum w n * sum y n.
Proof.
  induction n as [|n IH]; intros H; simpl sum; [apply H; lia|].
  destruct (H (S n) ltac:(lia)) as [W [Y X]], (IH ltac:(intros; apply H; lia)) as [W' [Y' X']].
  split; [lra | split; [lra | now apply schwarz_two]].
Qed.

(** *** Sums over all entries. *)
Notation total2 n m f := (sum (fun i => sum (fun j => f i j) m) n).
Definition divergence n m (P M : nat -> nat -> R) : R := total2 n m (fun i j => excess (P i j) (M i j)).

Lemma divergence_nonneg n m P M : (forall i j, 0 < P i j) -> (forall i j, 0 < M i j) -> 0 <= divergence n m P M.
Proof. intros; apply cond_pos_sum; intros; apply cond_pos_sum; intros; now apply excess_nonneg. Qed.

(** B.3. *)
Theorem pinsker n m (P M : nat -> nat -> R) :
  (forall i j, 0 < P i j) -> (forall i j, 0 < M i j) ->
  total2 n m (fun i j => Rabs (P i j - M i j)) ^ 2
  <= (2 / 3 * total2 n m P + 4 / 3 * total2 n m M) * divergence n m P M.
Proof.
  intros HP HM.
  replace (2 / 3 * total2 n m P + 4 / 3 * total2 n m M) with (total2 n m (fun i j => 2 / 3 * P i j + 4 / 3 * M i j)).
  2: { rewrite <- !sum_scale, <- plus_sum. apply sum_eq; intros i _. now rewrite <- !sum_scale, <- plus_sum. }
  apply (schwarz (fun i => sum (fun j => Rabs (P i j - M i j)) m)); intros i _.
  apply (schwarz (fun j => Rabs (P i j - M i j))); intros j _. specialize (HP i j). specialize (HM i j).
  rewrite pow2_abs. pose proof (pinsker_entry _ _ HP HM). pose proof (excess_nonneg _ _ HP HM).
  split; [lra | split; [assumption | nra]].
Qed.

Lemma pairing n m (P : nat -> nat -> R) (x y : nat -> R) :
  total2 n m (fun i j => P i j * (x i + y j))
  = sum (fun i => x i * sum (P i) m) n + sum (fun j => y j * sum (fun i => P i j) n) m.
Proof.
  replace (sum (fun j => y j * sum (fun i => P i j) n) m) with (total2 n m (fun i j => y j * P i j)).
  - rewrite <- plus_sum. apply sum_eq; intros i _. rewrite <- sum_scale, <- plus_sum. apply sum_eq; intros; ring.
  - rewrite sum_swap. apply sum_eq; intros. now rewrite sum_scale.
Qed.

(** *** B.1 and B.2. *)
Section Solution.
Variables (n m : nat) (lambda : R) (C : nat -> nat -> R) (a b us vs : nat -> R).
Hypothesis Lambda : 0 < lambda.

Definition solves : Prop :=
  (forall i, (i <= n)%nat -> row m lambda C us vs i = a i) /\ (forall j, (j <= m)%nat -> col n lambda C us vs j = b j).
Hypothesis Solution : solves.

(** ||grad L||_1. *)
Definition gradient (u v : nat -> R) : R :=
  sum (fun i => Rabs (row m lambda C u v i - a i)) n + sum (fun j => Rabs (col n lambda C u v j - b j)) m.

Lemma log_ratio u v x y (C' : nat -> nat -> R) i j :
  lambda * ln (plan lambda C u v i j / plan lambda C' x y i j) = u i - x i + (v j - y j) - (C i j - C' i j).
Proof. unfold plan, Rdiv at 1. rewrite <- exp_Ropp, <- exp_plus, ln_exp. field. lra. Qed.

Theorem divergence_is_the_excess u v :
  lambda * divergence n m (plan lambda C us vs) (plan lambda C u v)
  = dual n m lambda C a b u v - dual n m lambda C a b us vs.
Proof.
  destruct Solution as [Row Col].
  assert (E : lambda * divergence n m (plan lambda C us vs) (plan lambda C u v)
    = total2 n m (fun i j => plan lambda C us vs i j * (us i - u i + (vs j - v j)))
      - lambda * sum (row m lambda C us vs) n + lambda * sum (row m lambda C u v) n).
  { unfold divergence. rewrite <- !sum_scale, <- minus_sum, <- plus_sum. apply sum_eq; intros i _. unfold row.
    rewrite <- !sum_scale, <- minus_sum, <- plus_sum. apply sum_eq; intros j _.
    pose proof (log_ratio us vs u v C i j) as R. unfold excess.
    replace (us i - u i + (vs j - v j)) with (lambda * ln (plan lambda C us vs i j / plan lambda C u v i j)) by lra. ring. }
  rewrite E, (pairing n m _ (fun i => us i - u i) (fun j => vs j - v j)). unfold dual.
  rewrite (sum_eq _ (fun i => a i * us i - a i * u i))
    by (intros i I; change (sum _ m) with (row m lambda C us vs i); rewrite (Row i I); ring).
  rewrite (sum_eq (fun j => (vs j - v j) * _) (fun j => b j * vs j - b j * v j))
    by (intros j J; change (sum _ n) with (col n lambda C us vs j); rewrite (Col j J); ring).
  rewrite !minus_sum. ring.
Qed.

Lemma plan_pos u v i j : 0 < plan lambda C u v i j. Proof. apply exp_pos. Qed.

Lemma pairing_bound (x g : nat -> R) d k : (forall i, (i <= k)%nat -> Rabs (x i) <= d) ->
  sum (fun i => x i * g i) k <= sum (fun i => Rabs (g i)) k * d.
Proof.
  intros H. rewrite Rmult_comm, <- sum_scale. apply sum_Rle; intros i I. specialize (H i I).
  pose proof (Rle_abs (x i * g i)) as B. rewrite Rabs_mult in B. pose proof (Rabs_pos (g i)). nra.
Qed.

(** No derivative and no convexity: lambda KL(P|M) + lambda KL(M|P) is the pairing of the gradient with theta - theta*. *)
Theorem gradient_bounds_the_excess u v d :
  (forall i, (i <= n)%nat -> Rabs (u i - us i) <= d) -> (forall j, (j <= m)%nat -> Rabs (v j - vs j) <= d) ->
  lambda * divergence n m (plan lambda C us vs) (plan lambda C u v) <= gradient u v * d.
Proof.
  intros U V. destruct Solution as [Row Col].
  set (P := plan lambda C us vs). set (M := plan lambda C u v).
  assert (E : lambda * divergence n m P M + lambda * divergence n m M P
    = total2 n m (fun i j => (M i j - P i j) * (u i - us i + (v j - vs j)))).
  { unfold divergence. rewrite <- !sum_scale, <- plus_sum. apply sum_eq; intros i _.
    rewrite <- !sum_scale, <- plus_sum. apply sum_eq; intros j _.
    pose proof (log_ratio us vs u v C i j) as R. pose proof (log_ratio u v us vs C i j) as R'. fold P M in R, R'.
    unfold excess. transitivity (P i j * (lambda * ln (P i j / M i j)) + M i j * (lambda * ln (M i j / P i j))); [ring|].
    rewrite R, R'. ring. }
  cbv beta in E. rewrite (pairing n m (fun i j => M i j - P i j) (fun i => u i - us i) (fun j => v j - vs j)) in E.
  pose proof (divergence_nonneg n m M P ltac:(intros; apply plan_pos) ltac:(intros; apply plan_pos)).
  assert (Gr : sum (fun i => (u i - us i) * sum (fun j => M i j - P i j) m) n
               <= sum (fun i => Rabs (row m lambda C u v i - a i)) n * d).
  { rewrite (sum_eq _ (fun i => (u i - us i) * (row m lambda C u v i - a i))); [now apply pairing_bound|].
    intros i I. now rewrite minus_sum, <- (Row i I). }
  assert (Gc : sum (fun j => (v j - vs j) * sum (fun i => M i j - P i j) n) m
               <= sum (fun j => Rabs (col n lambda C u v j - b j)) m * d).
  { rewrite (sum_eq _ (fun j => (v j - vs j) * (col n lambda C u v j - b j))); [now apply pairing_bound|].
    intros j J. now rewrite minus_sum, <- (Col j J). }
  unfold gradient. assert (0 <= lambda * divergence n m M P) by nra. lra.
Qed.

(** Section 3 for a solution, which every layer keeps: no layer with steps up to 2 lambda leads away from it. *)
Hypothesis A : forall i, (i <= n)%nat -> 0 < a i.
Hypothesis B : forall j, (j <= m)%nat -> 0 < b j.

Definition within (d : R) (u v : nat -> R) : Prop :=
  (forall i, (i <= n)%nat -> Rabs (u i - us i) <= d) /\ (forall j, (j <= m)%nat -> Rabs (v j - vs j) <= d).

Lemma layer_stays_within gr gc u v d : 0 <= gr <= 2 * lambda -> 0 <= gc <= 2 * lambda -> within d u v ->
  within d (rows_head m lambda C a gr u v) (cols_head n lambda C b gc u v).
Proof.
  intros Gr Gc [U V]. destruct Solution as [Row Col].
  destruct (layer_non_expansive n m lambda C a b gr gc u v us vs d Lambda A B ltac:(lra) ltac:(lra) U V) as [U' V'].
  assert (Z : forall x g w, x - g * ((w - w) / (w + w)) = x) by (intros; unfold Rdiv; rewrite Rminus_eq_0; ring).
  split; [intros i I; specialize (U' i I); unfold rows_head at 2 in U'; now rewrite (Row i I), Z in U'
         | intros j J; specialize (V' j J); unfold cols_head at 2 in V'; now rewrite (Col j J), Z in V'].
Qed.

(** B.2: what the values |tanh(z/2)| <= t of the attention heads say of the marginals, and so of the plan. *)
Lemma marginal_by_the_head S w t : 0 < S -> 0 < w -> t < 1 -> Rabs ((S - w) / (S + w)) <= t ->
  Rabs (S - w) <= w * (2 * t / (1 - t)).
Proof.
  intros HS W T H. unfold Rdiv in H. rewrite Rabs_mult, (Rabs_right (/ (S + w))) in H by (left; apply Rinv_0_lt_compat; lra).
  assert (E : Rabs (S - w) <= t * (S + w)).
  { apply Rmult_le_reg_r with (/ (S + w)); [apply Rinv_0_lt_compat; lra|]. rewrite Rmult_assoc, Rinv_r; lra. }
  apply Rmult_le_reg_r with (1 - t); [lra|]. replace (w * (2 * t / (1 - t)) * (1 - t)) with (2 * w * t) by (field; lra).
  revert E. pose proof (Rabs_pos (S - w)). unfold Rabs in *; destruct Rcase_abs; nra.
Qed.

Definition heads_below (t : R) (u v : nat -> R) : Prop :=
  (forall i, (i <= n)%nat -> Rabs ((row m lambda C u v i - a i) / (row m lambda C u v i + a i)) <= t) /\
  (forall j, (j <= m)%nat -> Rabs ((col n lambda C u v j - b j) / (col n lambda C u v j + b j)) <= t).

Theorem divergence_by_the_heads u v d t s : within d u v -> heads_below t u v -> 0 <= t < 1 -> sum a n = s -> sum b m = s ->
  divergence n m (plan lambda C us vs) (plan lambda C u v) <= d / lambda * (4 * s * t / (1 - t)).
Proof.
  intros [U V] [Hr Hc] T Sa Sb. pose proof (gradient_bounds_the_excess u v d U V) as G.
  assert (D : 0 <= d) by (specialize (U O ltac:(lia)); pose proof (Rabs_pos (u O - us O)); lra).
  assert (N : gradient u v <= 4 * s * t / (1 - t)).
  { replace (4 * s * t / (1 - t)) with (2 * t / (1 - t) * sum a n + 2 * t / (1 - t) * sum b m)
      by (rewrite Sa, Sb; field; lra).
    rewrite <- !sum_scale. apply Rplus_le_compat; apply sum_Rle; intros k K; rewrite Rmult_comm;
      (apply marginal_by_the_head; auto; [apply sum_pos; intros; apply exp_pos | lra]). }
  apply Rmult_le_reg_l with lambda; [assumption|]. eapply Rle_trans; [exact G|].
  replace (lambda * (d / lambda * (4 * s * t / (1 - t)))) with (4 * s * t / (1 - t) * d) by (field; lra).
  now apply Rmult_le_compat_r.
Qed.

(** B.2 along a network, each layer with its own steps up to 2 lambda: the distance is that of the start. *)
Lemma network_stays_within (gr gc : nat -> R) (u v : nat -> nat -> R) d :
  (forall k, 0 <= gr k <= 2 * lambda /\ 0 <= gc k <= 2 * lambda) ->
  (forall k, u (S k) = rows_head m lambda C a (gr k) (u k) (v k)) ->
  (forall k, v (S k) = cols_head n lambda C b (gc k) (u k) (v k)) ->
  within d (u O) (v O) -> forall k, within d (u k) (v k).
Proof.
  intros G U V W k. induction k as [|k IH]; [exact W|]. rewrite U, V. now apply layer_stays_within; try apply G.
Qed.

Theorem divergence_at_a_layer (gr gc : nat -> R) (u v : nat -> nat -> R) d t s k :
  (forall k, 0 <= gr k <= 2 * lambda /\ 0 <= gc k <= 2 * lambda) ->
  (forall k, u (S k) = rows_head m lambda C a (gr k) (u k) (v k)) ->
  (forall k, v (S k) = cols_head n lambda C b (gc k) (u k) (v k)) ->
  within d (u O) (v O) -> heads_below t (u k) (v k) -> 0 <= t < 1 -> sum a n = s -> sum b m = s ->
  divergence n m (plan lambda C us vs) (plan lambda C (u k) (v k)) <= d / lambda * (4 * s * t / (1 - t)).
Proof.
  intros G U V W. apply divergence_by_the_heads. apply (network_stays_within gr gc); auto; intros l; specialize (G l); lra.
Qed.
End Solution.

(** G.2: costs that differ by at most e have plans of the same marginals that differ by at most s e/lambda in all. *)
Theorem plan_against_the_cost n m lambda C C' a b u v u' v' e s :
  0 < lambda -> 0 < s -> solves n m lambda C a b u v -> solves n m lambda C' a b u' v' -> sum a n = s ->
  (forall i j, (i <= n)%nat -> (j <= m)%nat -> Rabs (C' i j - C i j) <= e) ->
  total2 n m (fun i j => Rabs (plan lambda C' u' v' i j - plan lambda C u v i j)) <= s * e / lambda.
Proof.
  intros L Hs [Row Col] [Row' Col'] Sa E.
  set (P := plan lambda C u v). set (Q := plan lambda C' u' v').
  set (N := total2 n m (fun i j => Rabs (Q i j - P i j))).
  assert (HP : forall i j, 0 < P i j) by (intros; apply exp_pos).
  assert (HQ : forall i j, 0 < Q i j) by (intros; apply exp_pos).
  assert (SP : total2 n m P = s) by (rewrite <- Sa; apply sum_eq; intros i I; now apply Row).
  assert (SQ : total2 n m Q = s) by (rewrite <- Sa; apply sum_eq; intros i I; now apply Row').
  pose proof (pinsker n m Q P HQ HP) as K1. pose proof (pinsker n m P Q HP HQ) as K2.
  rewrite (sum_eq _ (fun i => sum (fun j => Rabs (Q i j - P i j)) m)) in K2
    by (intros; apply sum_eq; intros; apply Rabs_minus_sym).
  fold N in K1, K2. rewrite SP, SQ in K1, K2.
  assert (Z : total2 n m (fun i j => (Q i j - P i j) * (u' i - u i + (v' j - v j))) = 0).
  { rewrite (pairing n m (fun i j => Q i j - P i j) (fun i => u' i - u i) (fun j => v' j - v j)).
    rewrite (sum_eq _ (fun _ => 0)), (sum_eq (fun j => (v' j - v j) * _) (fun _ => 0)), !sum_cte; [ring | |];
      intros k K; rewrite minus_sum.
    - rewrite (Col' k K : sum (fun i => Q i k) n = _), (Col k K : sum (fun i => P i k) n = _). ring.
    - rewrite (Row' k K : sum (Q k) m = _), (Row k K : sum (P k) m = _). ring. }
  assert (D : lambda * divergence n m Q P + lambda * divergence n m P Q <= e * N).
  { apply Rle_trans with (e * N + total2 n m (fun i j => (Q i j - P i j) * (u' i - u i + (v' j - v j)))); [|lra].
    unfold divergence, N. rewrite <- !sum_scale, <- !plus_sum. apply sum_Rle; intros i I.
    rewrite <- !sum_scale, <- !plus_sum. apply sum_Rle; intros j J. unfold excess.
    pose proof (log_ratio lambda C' L u' v' u v C i j) as R. pose proof (log_ratio lambda C L u v u' v' C' i j) as R'.
    fold P Q in R, R'. specialize (E i j I J). pose proof (Rle_abs ((Q i j - P i j) * (C' i j - C i j))) as B1.
    pose proof (Rle_abs (- ((Q i j - P i j) * (C' i j - C i j)))) as B2. rewrite Rabs_Ropp, Rabs_mult in B2.
    pose proof (Rabs_pos (Q i j - P i j)).
    apply Rle_trans with (Q i j * (lambda * ln (Q i j / P i j)) + P i j * (lambda * ln (P i j / Q i j))); [right; ring|].
    rewrite R, R'. nra. }
  apply Rmult_le_reg_r with (lambda / s); [now apply Rdiv_lt_0_compat|].
  replace (s * e / lambda * (lambda / s)) with e by (field; lra).
  assert (N0 : 0 <= N) by (apply cond_pos_sum; intros; apply cond_pos_sum; intros; apply Rabs_pos).
  destruct N0 as [N0|<-].
  - apply Rmult_le_reg_r with N; [assumption|]. replace (N * (lambda / s) * N) with (lambda / s * N ^ 2) by ring.
    eapply Rle_trans; [|exact D].
    replace (lambda / s * N ^ 2) with (lambda * (N ^ 2 / (2 * s)) + lambda * (N ^ 2 / (2 * s))) by (field; lra).
    apply Rplus_le_compat; (apply Rmult_le_compat_l; [lra|]); apply Rmult_le_reg_r with (2 * s); try lra;
      unfold Rdiv; rewrite Rmult_assoc, Rinv_l by lra; lra.
  - specialize (E O O ltac:(lia) ltac:(lia)). pose proof (Rabs_pos (C' O O - C O O)). lra.
Qed.
