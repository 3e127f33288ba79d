(** Theorem C of docs/theorems.md: a network reaches KL(P|M) <= eps in k_0 + O(1/eps) layers, from any start.
    Any n and m, any positive weights of one sum s, any costs; every layer may have its own omega. *)
From Coq Require Import Reals Lra Lia.
From Coquelicot Require Import Coquelicot.
From OTformer Require Import Tanh Layer NonExpansive Birkhoff Descent Constants Dual Divergence.
Open Scope R_scope.

(** *** (ii) and (iii): numbers x_k that fall by q x^2/(1 + x) or more. *)
Definition psi (x : R) : R := / x - ln x.

(** psi is convex, psi' = -(1 + x)/x^2: the tangent at x, at y <= x. *)
Lemma psi_tangent x y : 0 < y -> 0 < x -> psi x + (1 + x) / x ^ 2 * (x - y) <= psi y.
Proof.
  intros Y X. unfold psi. pose proof (ln_above (x / y) ltac:(now apply Rdiv_lt_0_compat)) as L.
  replace (/ (x / y)) with (y / x) in L by (field; lra).
  unfold Rdiv at 2 in L. rewrite ln_mult, ln_Rinv in L by (try apply Rinv_0_lt_compat; assumption).
  assert (/ x + (1 + x) / x ^ 2 * (x - y) - (1 - y / x) <= / y); [|lra].
  apply Rminus_le_0. replace (/ y - _) with ((x - y) ^ 2 / (x ^ 2 * y)) by (field; lra).
  apply Rmult_le_pos; [apply pow2_ge_0 | left; apply Rinv_0_lt_compat; assert (0 < x ^ 2) by (apply pow_lt; lra); nra].
Qed.

Theorem summation (x : nat -> R) q k : (forall l, (l <= k)%nat -> 0 < x l) ->
  (forall l, (l < k)%nat -> q * (x l ^ 2 / (1 + x l)) <= x l - x (S l)) ->
  psi (x O) + q * INR k <= psi (x k).
Proof.
  induction k as [|k IH]; intros X F; [simpl; lra|].
  specialize (IH ltac:(intros; apply X; lia) ltac:(intros; apply F; lia)).
  pose proof (X k ltac:(lia)) as P. specialize (F k ltac:(lia)).
  pose proof (psi_tangent (x k) (x (S k)) (X (S k) ltac:(lia)) P) as T.
  assert (q <= (1 + x k) / x k ^ 2 * (x k - x (S k))); [|rewrite S_INR; lra].
  apply Rle_trans with ((1 + x k) / x k ^ 2 * (q * (x k ^ 2 / (1 + x k)))); [right; field; lra|].
  apply Rmult_le_compat_l; [|exact F]. left; apply Rdiv_lt_0_compat; [lra | apply pow_lt; lra].
Qed.

(** The layer from which the bound begins: k_0 = max(0, log x_0)/q. *)
Definition begins (x0 q : R) : R := Rmax 0 (ln x0) / q.

Theorem one_over_k (x : nat -> R) q k : 0 < q -> (forall l, (l <= k)%nat -> 0 <= x l) ->
  (forall l, (l < k)%nat -> q * (x l ^ 2 / (1 + x l)) <= x l - x (S l)) ->
  begins (x O) q < INR k -> x k <= 2 / (q * (INR k - begins (x O) q)).
Proof.
  intros Q X F K. set (g := q * (INR k - begins (x O) q)). assert (G : 0 < g) by (apply Rmult_lt_0_compat; lra).
  destruct (X k ltac:(lia)) as [P|<-]; [|left; apply Rdiv_lt_0_compat; lra].
  assert (Pos : forall j l, (l + j = k)%nat -> 0 < x l).
  { induction j as [|j IH]; intros l E; [now replace l with k by lia|].
    specialize (IH (S l) ltac:(lia)). specialize (F l ltac:(lia)). specialize (X l ltac:(lia)).
    assert (0 <= x l ^ 2 / (1 + x l)) by (apply Rmult_le_pos; [apply pow2_ge_0 | left; apply Rinv_0_lt_compat; lra]). nra. }
  assert (Pos' : forall l, (l <= k)%nat -> 0 < x l) by (intros l L; apply (Pos (k - l)%nat); lia).
  pose proof (summation x q k Pos' F) as S. pose proof (Pos' O ltac:(lia)) as P0.
  assert (B : q * begins (x O) q = Rmax 0 (ln (x O))) by (unfold begins; field; lra).
  assert (Start : - Rmax 0 (ln (x O)) <= psi (x O)).
  { unfold psi. pose proof (Rmax_r 0 (ln (x O))). pose proof (Rinv_0_lt_compat _ P0). lra. }
  assert (End : psi (x k) <= 2 * / x k).
  { unfold psi. pose proof (ln_above (x k) P). pose proof (Rinv_0_lt_compat _ P). lra. }
  assert (g <= 2 * / x k) by (unfold g; lra).
  apply Rmult_le_reg_r with (g * / x k); [apply Rmult_lt_0_compat; [assumption | now apply Rinv_0_lt_compat]|].
  replace (x k * (g * / x k)) with g by (field; lra). now replace (2 / g * (g * / x k)) with (2 * / x k) by (field; lra).
Qed.

(** *** (i): one layer.  s is the sum of the weights of either side. *)
(** The residual of one side against its share of the gradient. *)
Lemma residual (S w : nat -> R) n s : (forall k, 0 < S k) -> (forall k, (k <= n)%nat -> 0 < w k) -> sum w n = s ->
  let N := sum (fun k => Rabs (S k - w k)) n in
  0 <= N /\ 0 <= sum (fun k => (S k - w k) ^ 2 / (S k + w k)) n /\
  N ^ 2 <= (2 * s + N) * sum (fun k => (S k - w k) ^ 2 / (S k + w k)) n.
Proof.
  intros HS W E N.
  destruct (schwarz (fun k => Rabs (S k - w k)) (fun k => S k + w k) (fun k => (S k - w k) ^ 2 / (S k + w k)) n)
    as [P [D Q]].
  { intros k K. specialize (HS k). specialize (W k K). rewrite pow2_abs. pose proof (pow2_ge_0 (S k - w k)).
    split; [lra | split; [apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra] | right; field; lra]]. }
  assert (N0 : 0 <= N) by (apply cond_pos_sum; intros; apply Rabs_pos).
  split; [exact N0 | split; [exact D|]]. eapply Rle_trans; [exact Q|]. apply Rmult_le_compat_r; [exact D|].
  unfold N. rewrite <- E, <- sum_scale, <- plus_sum. apply sum_Rle; intros k _. pose proof (Rle_abs (S k - w k)). lra.
Qed.

Lemma share_grows z x y : 0 < z -> 0 <= x <= y -> x ^ 2 / (z + x) <= y ^ 2 / (z + y).
Proof.
  intros Z X. apply Rminus_le_0.
  replace (y ^ 2 / (z + y) - x ^ 2 / (z + x)) with ((y - x) * (z * (x + y) + x * y) / ((z + y) * (z + x))) by (field; lra).
  apply Rmult_le_pos; [apply Rmult_le_pos; nra | left; apply Rinv_0_lt_compat; nra].
Qed.

Lemma divide_square x z z' d : 0 <= d -> 0 < z' <= z -> x ^ 2 <= z' * d -> x ^ 2 / z <= d.
Proof. intros D Z H. apply Rmult_le_reg_r with z; [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l; nra. Qed.

Section OneProblem.
Variables (n m : nat) (lambda : R) (C : nat -> nat -> R) (a b us vs : nat -> R) (s r c : R).
Hypothesis Lambda : 0 < lambda.
Hypothesis A : forall i, (i <= n)%nat -> 0 < a i.
Hypothesis B : forall j, (j <= m)%nat -> 0 < b j.
Hypothesis Sums : sum a n = s /\ sum b m = s.
Hypothesis Solution : solves n m lambda C a b us vs.
Hypothesis Positive : 0 < r /\ 0 < c.

(** delta = L - L* = lambda KL(P|M), by B.1. *)
Let kl (u v : nat -> R) : R := divergence n m (plan lambda C us vs) (plan lambda C u v).
Let delta (u v : nat -> R) : R := lambda * kl u v.
Let L := dual n m lambda C a b.

Lemma fall u v u' v' : delta u v - delta u' v' = L u v - L u' v'.
Proof. unfold delta, kl, L. rewrite !(divergence_is_the_excess n m lambda C a b us vs Lambda Solution). ring. Qed.

Lemma s_pos : 0 < s. Proof. destruct Sums as [<- _]. now apply sum_pos. Qed.
Lemma row_pos u v i : 0 < row m lambda C u v i. Proof. apply sum_pos; intros; apply exp_pos. Qed.
Lemma col_pos u v j : 0 < col n lambda C u v j. Proof. apply sum_pos; intros; apply exp_pos. Qed.
Lemma kl_nonneg u v : 0 <= kl u v. Proof. apply divergence_nonneg; intros; apply exp_pos. Qed.

(** From a fall by the gradient N or more to a fall by delta <= R N. *)
Lemma fall_from_gradient t N d : 0 < t -> 0 <= d <= r * N -> d ^ 2 / (r * (t * s * r + d)) <= N ^ 2 / (t * s + N).
Proof.
  intros T D. destruct Positive as [HR _]. pose proof s_pos as HS. assert (Z : 0 < t * s) by nra.
  assert (E : 0 <= d / r <= N).
  { split; [apply Rmult_le_pos; [lra | left; now apply Rinv_0_lt_compat] | apply Rle_div_l; lra]. }
  eapply Rle_trans; [|apply (share_grows (t * s) (d / r) N Z E)]. right. field. assert (0 < t * s * r) by nra. split; lra.
Qed.

(** D >= N^2/(4 s + N), D the residual of both sides, N = ||grad L||_1. *)
Theorem residual_by_the_gradient u v : let N := gradient n m lambda C a b u v in
  0 <= N /\ N ^ 2 / (4 * s + N)
  <= sum (fun i => (row m lambda C u v i - a i) ^ 2 / (row m lambda C u v i + a i)) n
     + sum (fun j => (col n lambda C u v j - b j) ^ 2 / (col n lambda C u v j + b j)) m.
Proof.
  destruct Sums as [Sa Sb]. pose proof s_pos as HS. unfold gradient.
  destruct (residual _ a n s (row_pos u v) A Sa) as [N1 [D1 R1]], (residual _ b m s (col_pos u v) B Sb) as [N2 [D2 R2]].
  set (N := sum (fun i => Rabs (row m lambda C u v i - a i)) n) in *.
  set (N' := sum (fun j => Rabs (col n lambda C u v j - b j)) m) in *. split; [lra|].
  pose proof (schwarz_two N N' (2 * s + N) (2 * s + N') _ _ ltac:(lra) ltac:(lra) D1 D2 R1 R2) as Q.
  apply (divide_square _ (4 * s + (N + N'))) in Q; lra.
Qed.

(** Both heads, gamma = lambda omega. *)
Theorem descent_by_the_gradient w u v : fall_constant w c ->
  let N := gradient n m lambda C a b u v in lambda * c / 2 * (N ^ 2 / (4 * s + N))
  <= delta u v - delta (rows_head m lambda C a (lambda * w) u v) (cols_head n lambda C b (lambda * w) u v).
Proof.
  intros F N. pose proof (both_heads_lower_by_the_residual n m lambda C a b u v w c Lambda A B F) as Fall.
  destruct (residual_by_the_gradient u v) as [_ Q], Positive as [_ HC]. fold N in Q. rewrite fall.
  apply (Rmult_le_compat_l (lambda * c / 2)) in Q; [unfold L; lra | nra].
Qed.

Theorem descent_per_layer w u v : fall_constant w c -> within n m us vs r u v ->
  lambda * c / 2 * (delta u v ^ 2 / (r * (4 * s * r + delta u v)))
  <= delta u v - delta (rows_head m lambda C a (lambda * w) u v) (cols_head n lambda C b (lambda * w) u v).
Proof.
  intros F [U V]. eapply Rle_trans; [|exact (descent_by_the_gradient w u v F)].
  pose proof (gradient_bounds_the_excess n m lambda C a b us vs Lambda Solution u v r U V) as K.
  pose proof (kl_nonneg u v). destruct Positive as [_ HC]. apply Rmult_le_compat_l; [nra|].
  apply fall_from_gradient; [lra|]. unfold delta. split; [nra | now rewrite Rmult_comm with (r1 := r)].
Qed.

(** Alternating heads, gamma = 2 lambda omega, omega <= 1: the rows' head takes each S_i part of the way to a_i ... *)
Lemma part_of_the_way S x w : 0 < S -> 0 < x -> 0 <= w <= 1 ->
  Rabs (S * exp (- (2 * w * ((S - x) / (S + x)))) - S) <= Rabs (S - x).
Proof.
  intros HS X W. rewrite tanh_identity by assumption. set (z := ln (S / x)).
  assert (Q : S * exp (- z) = x) by (unfold z; rewrite exp_Ropp, exp_ln by (now apply Rdiv_lt_0_compat); field; lra).
  assert (T0 : tanh 0 = 0) by (rewrite tanh_exp, Rmult_0_r, exp_0; field).
  pose proof (tanh_increasing 0 (/ 2 * z)) as T1. pose proof (tanh_lipschitz 0 (/ 2 * z)) as T2.
  pose proof (tanh_increasing (/ 2 * z) 0) as T3. pose proof (tanh_lipschitz (/ 2 * z) 0) as T4.
  set (t := tanh (/ 2 * z)) in *. set (y := exp (- (2 * w * t))).
  assert (x <= S * y <= S \/ S <= S * y <= x); [|unfold Rabs; repeat destruct Rcase_abs; lra].
  destruct (Rle_dec 0 z) as [Z|Z]; [left; specialize (T1 ltac:(lra)); specialize (T2 ltac:(lra))
                                   |right; specialize (T3 ltac:(lra)); specialize (T4 ltac:(lra))].
  - assert (exp (- z) <= y <= exp 0) by (split; apply exp_le; nra). rewrite exp_0 in *. split; [rewrite <- Q|]; nra.
  - assert (exp 0 <= y <= exp (- z)) by (split; apply exp_le; nra). rewrite exp_0 in *. split; [|rewrite <- Q]; nra.
Qed.

(** ... and so changes the columns' sums by at most sum |S_i - a_i| in all. *)
Lemma columns_move_by_the_rows w u v : 0 <= w <= 1 ->
  sum (fun j => Rabs (col n lambda C (rows_head m lambda C a (2 * lambda * w) u v) v j - col n lambda C u v j)) m
  <= sum (fun i => Rabs (row m lambda C u v i - a i)) n.
Proof.
  intros W. set (U := rows_head m lambda C a (2 * lambda * w) u v).
  apply Rle_trans with (total2 n m (fun i j => Rabs (plan lambda C U v i j - plan lambda C u v i j))).
  - rewrite sum_swap. apply sum_Rle; intros j _. unfold col. rewrite <- minus_sum. apply Rsum_abs.
  - apply sum_Rle; intros i I. eapply Rle_trans; [|apply (part_of_the_way _ _ w (row_pos u v i) (A i I) W)].
    assert (E : forall x y, 0 < x -> Rabs (x * y - x) = Rabs (y - 1) * x).
    { intros x y X. rewrite <- (Rabs_right x) at 3 by lra. rewrite <- Rabs_mult. f_equal. ring. }
    right. rewrite E by apply row_pos. unfold row at 3. rewrite <- sum_scale. apply sum_eq; intros j _.
    rewrite <- E by apply exp_pos. do 2 f_equal. unfold plan, U, rows_head. rewrite <- exp_plus. f_equal. unfold Rdiv.
    field_simplify; [reflexivity|..]; pose proof (row_pos u v i); specialize (A i I); lra.
Qed.

Theorem descent_per_pair w w' u v : 0 <= w <= 1 -> fall_constant w c -> fall_constant w' c -> within n m us vs r u v ->
  let u' := rows_head m lambda C a (2 * lambda * w) u v in
  lambda * c / 2 * (delta u v ^ 2 / (r * (5 * s * r + delta u v)))
  <= delta u v - delta u' (cols_head n lambda C b (2 * lambda * w') u' v).
Proof.
  intros W F F' Near u'.
  pose proof (rows_head_lowers_by_the_residual n m lambda C a b u v Lambda A w c F) as Fall.
  cbv beta in Fall. fold u' in Fall.
  pose proof (cols_head_lowers_by_the_residual n m lambda C a b u' v w' c Lambda B F') as Fall'.
  destruct Sums as [Sa Sb], Positive as [_ HC]. pose proof s_pos as HS.
  destruct (residual _ a n s (row_pos u v) A Sa) as [N1 [D1 R1]], (residual _ b m s (col_pos u' v) B Sb) as [N2 [D2 R2]].
  destruct Near as [U V]. pose proof (gradient_bounds_the_excess n m lambda C a b us vs Lambda Solution u v r U V) as G.
  pose proof (kl_nonneg u v) as P. unfold gradient in G. fold (kl u v) in G. fold (delta u v) in G. rewrite fall.
  assert (P0 : 0 <= delta u v) by (unfold delta; nra).
  pose proof (columns_move_by_the_rows w u v ltac:(lra)) as Move. fold u' in Move.
  set (p := sum (fun i => Rabs (row m lambda C u v i - a i)) n) in *.
  set (q := sum (fun j => Rabs (col n lambda C u' v j - b j)) m) in *.
  assert (K : sum (fun j => Rabs (col n lambda C u v j - b j)) m <= p + q).
  { eapply Rle_trans; [|apply Rplus_le_compat_r; exact Move]. unfold q. rewrite <- plus_sum. apply sum_Rle; intros j _.
    unfold Rabs; repeat destruct Rcase_abs; lra. }
  pose proof (schwarz_two (2 * p) q (4 * (2 * s + p)) (2 * s + q) _ _ ltac:(lra) ltac:(lra) D1 D2 ltac:(lra) R2) as Q.
  apply (divide_square _ (2 * (5 * s + (2 * p + q)))) in Q; try lra.
  replace (_ / (2 * _)) with ((2 * p + q) ^ 2 / (5 * s + (2 * p + q)) / 2) in Q by (field; lra).
  pose proof (fall_from_gradient 5 (2 * p + q) (delta u v) ltac:(lra) ltac:(nra)) as H.
  apply (Rmult_le_compat_l (lambda * c / 2)) in H; [|nra].
  apply (Rmult_le_compat_l (lambda * c)) in Q; [unfold L; lra | nra].
Qed.

(** *** Networks.  t is 4 for both heads (16 below) and 5 for a pair of alternating heads (20 below). *)
Definition depth_bound (t : R) (u v : nat -> nat -> R) (k : nat) : Prop :=
  let k0 := begins (kl (u O) (v O) / (t * s * r / lambda)) (lambda * c / (2 * r)) in
  let q := 4 * t * s * (r / lambda) ^ 2 in
  (k0 < INR k -> kl (u k) (v k) <= q / (c * (INR k - k0))) /\
  (forall e, 0 < e -> k0 + q / (c * e) <= INR k -> kl (u k) (v k) <= e).

Lemma divergence_at_depth t (u v : nat -> nat -> R) k : 0 < t ->
  (forall l, lambda * c / 2 * (delta (u l) (v l) ^ 2 / (r * (t * s * r + delta (u l) (v l))))
             <= delta (u l) (v l) - delta (u (S l)) (v (S l))) -> depth_bound t u v k.
Proof.
  intros T F. unfold depth_bound. destruct Positive as [HR HC]. pose proof s_pos as HS.
  set (g := t * s * r / lambda). assert (Z : 0 < t * s * r) by (repeat apply Rmult_lt_0_compat; lra).
  assert (G : 0 < g) by (now apply Rdiv_lt_0_compat). set (k0 := begins _ _). set (q := 4 * t * s * (r / lambda) ^ 2).
  enough (Iii : k0 < INR k -> kl (u k) (v k) <= q / (c * (INR k - k0))).
  { split; [exact Iii|]. intros e He K. assert (HX : 0 < q).
    { apply Rmult_lt_0_compat; [nra | apply pow_lt, Rdiv_lt_0_compat; lra]. }
    assert (0 < q / (c * e)) by (apply Rdiv_lt_0_compat; nra). eapply Rle_trans; [apply Iii; lra|].
    assert (D : 0 < INR k - k0) by lra. apply Rmult_le_reg_r with (c * (INR k - k0)); [now apply Rmult_lt_0_compat|].
    replace (q / (c * (INR k - k0)) * (c * (INR k - k0))) with (q / (c * e) * (c * e)) by (field; lra).
    replace (e * (c * (INR k - k0))) with ((INR k - k0) * (c * e)) by ring. apply Rmult_le_compat_r; nra. }
  assert (Q : 0 < lambda * c / (2 * r)) by (apply Rdiv_lt_0_compat; nra).
  intros K. apply Rmult_le_reg_r with (/ g); [now apply Rinv_0_lt_compat|].
  eapply Rle_trans; [apply (one_over_k (fun l => kl (u l) (v l) / g) (lambda * c / (2 * r)) k Q)|].
  - intros l _. apply Rmult_le_pos; [apply kl_nonneg | left; now apply Rinv_0_lt_compat].
  - intros l _. specialize (F l). pose proof (kl_nonneg (u l) (v l)). apply Rmult_le_reg_r with (lambda * g); [nra|].
    replace ((kl (u l) (v l) / g - kl (u (S l)) (v (S l)) / g) * (lambda * g))
      with (delta (u l) (v l) - delta (u (S l)) (v (S l))) by (unfold delta; field; lra).
    eapply Rle_trans; [right | exact F]. unfold g, delta. field. nra.
  - exact K.
  - fold k0. right. unfold g, q. field. lra.
Qed.

Variables (w : nat -> R) (u v : nat -> nat -> R).
Hypothesis Rates : forall l, fall_constant (w l) c.
Hypothesis Start : within n m us vs r (u O) (v O).

(** Alternating heads, the rows first; k counts pairs of layers. *)
Theorem depth_one_over_epsilon_alternating w' k : (forall l, fall_constant (w' l) c /\ 0 <= w l <= 1 /\ 0 <= w' l <= 1) ->
  (forall l, u (S l) = rows_head m lambda C a (2 * lambda * w l) (u l) (v l)) ->
  (forall l, v (S l) = cols_head n lambda C b (2 * lambda * w' l) (u (S l)) (v l)) -> depth_bound 5 u v k.
Proof.
  intros Short U V.
  assert (Near : forall l, within n m us vs r (u l) (v l)).
  { assert (G : forall g, 0 <= g <= 1 -> 0 <= 2 * lambda * g <= 2 * lambda) by (intros; nra).
    induction l as [|l IH]; [exact Start|]. destruct (Short l) as [_ [Wl Wl']].
    assert (Half : within n m us vs r (u (S l)) (v l)).
    { split; [rewrite U | apply IH].
      now apply (layer_stays_within _ _ _ C a b us vs Lambda Solution A B _ 0 _ _ _ (G (w l) ltac:(lra)) ltac:(lra) IH). }
    split; [apply Half | rewrite V].
    now apply (layer_stays_within _ _ _ C a b us vs Lambda Solution A B 0 _ _ _ _ ltac:(lra) (G (w' l) ltac:(lra)) Half). }
  apply divergence_at_depth; [lra|]. intros l. rewrite V, U. destruct (Short l) as [H [Wl _]]. apply descent_per_pair; auto; lra.
Qed.

Hypothesis Short : forall l, 0 <= w l <= 2.
Hypothesis U : forall l, u (S l) = rows_head m lambda C a (lambda * w l) (u l) (v l).
Hypothesis V : forall l, v (S l) = cols_head n lambda C b (lambda * w l) (u l) (v l).

(** (iii) for both heads: after k_0 + 16 s (R/lambda)^2/(c eps) layers the divergence is at most eps. *)
Theorem depth_one_over_epsilon k : depth_bound 4 u v k.
Proof.
  apply divergence_at_depth; [lra|]. intros l. rewrite U, V. apply descent_per_layer; [apply Rates|].
  apply (network_stays_within n m lambda C a b us vs Lambda Solution A B (fun l => lambda * w l) (fun l => lambda * w l));
    auto; intros i; specialize (Short i); nra.
Qed.

(** (iv): of any d layers from layer k on, one has a gradient N with N^2/(4 s + N) <= 2 delta_k/(lambda c d). *)
Theorem gradient_of_the_best_layer k d : (0 < d)%nat -> exists j, (k <= j < k + d)%nat /\
  gradient n m lambda C a b (u j) (v j) ^ 2 / (4 * s + gradient n m lambda C a b (u j) (v j))
  <= 2 * delta (u k) (v k) / (lambda * c * INR d).
Proof.
  set (G j := gradient n m lambda C a b (u j) (v j) ^ 2 / (4 * s + gradient n m lambda C a b (u j) (v j))).
  assert (F : forall j, lambda * c / 2 * G j <= delta (u j) (v j) - delta (u (S j)) (v (S j))).
  { intros j. rewrite U, V. apply descent_by_the_gradient, Rates. }
  intros D. destruct Positive as [_ HC].
  assert (H : exists j, (k <= j < k + d)%nat /\
    lambda * c / 2 * G j * INR d <= delta (u k) (v k) - delta (u (k + d)%nat) (v (k + d)%nat)).
  { induction d as [|d IH]; [lia|]. rewrite S_INR, Nat.add_succ_r. specialize (F (k + d)%nat). pose proof (pos_INR d).
    destruct d as [|d]; [exists k; rewrite Nat.add_0_r in *; simpl INR; split; [lia | lra]|].
    destruct (IH ltac:(lia)) as [j [J E]]. set (X := lambda * c / 2) in *.
    destruct (Rle_dec (X * G j) (X * G (k + S d)%nat)) as [Y|Y]; [exists j | exists (k + S d)%nat]; (split; [lia | nra]). }
  destruct H as [j [J E]]. exists j. split; [exact J|]. fold (G j). assert (0 < INR d) by (apply lt_0_INR; lia).
  assert (P : forall l, 0 <= delta (u l) (v l)) by (intros; apply Rmult_le_pos; [lra | apply kl_nonneg]).
  assert (Z : 0 < lambda * c * INR d) by (repeat apply Rmult_lt_0_compat; lra). pose proof (P k). pose proof (P (k + d)%nat).
  apply (proj1 (Rle_div_r _ _ _ Z)). lra.
Qed.
End OneProblem.
