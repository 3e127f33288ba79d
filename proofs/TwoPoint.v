(** Theorem D of docs/limits.md: with one lambda in all layers, an error of eps on the list x = (0, 1), y = (1/2, 3/2)
    takes about 2/eps layers, as long as that is less than e^(1/lambda).  Here the rows are 0 and 1, and so are the columns. *)
From Coq Require Import Reals Lra Lia.
From Coquelicot Require Import Coquelicot.
From OTformer Require Import Tanh Layer NonExpansive Birkhoff Dual Divergence.
Open Scope R_scope.

(** *** Numbers. *)
(** [[a, d], [b, c]]: the sums of rows and columns should be 1, and the second factor on the right is their error. *)
Lemma error_of_four a b c d : 0 < a -> 0 < b -> 0 < c -> 0 < d ->
  2 * (b - d) <= (a + b) * (Rabs (a + d - 1) + Rabs (b + c - 1) + (Rabs (a + b - 1) + Rabs (d + c - 1))).
Proof.
  intros A B C D. set (E := _ + _ + (_ + _)).
  assert (E1 : 2 * (b - d) <= E /\ 0 <= E) by (unfold E, Rabs; repeat destruct Rcase_abs; lra).
  destruct (Rle_dec 1 (a + b)) as [H|H]; [nra|].
  assert (2 * (1 - a - d) <= E) by (unfold E, Rabs; repeat destruct Rcase_abs; lra). nra.
Qed.

Lemma exp_below_the_chord g l : 0 <= g <= 1 -> exp (g * l) <= 1 + g * (exp l - 1).
Proof.
  intros G. pose proof (exp_pos (g * l)) as P. pose proof (exp_ineq1_le ((1 - g) * l)) as X.
  pose proof (exp_ineq1_le (- (g * l))) as Y.
  assert (EX : exp l = exp (g * l) * exp ((1 - g) * l)) by (rewrite <- exp_plus; f_equal; ring).
  assert (EY : 1 = exp (g * l) * exp (- (g * l))) by (rewrite <- exp_plus, Rplus_opp_r, exp_0; reflexivity).
  set (p := exp (g * l)) in *. apply (Rmult_le_compat_l p) in X; [|lra]. apply (Rmult_le_compat_l p) in Y; [|lra].
  rewrite <- EX in X. rewrite <- EY in Y. nra.
Qed.

Lemma to_tanh S : 0 < S -> (S - 1) / (S + 1) = tanh (/ 2 * ln S).
Proof. intros. rewrite tanh_identity by lra. now replace (S / 1) with S by field. Qed.

(** What a head does to a/b.  S is the sum of b's line and T that of a's. *)
Lemma ratio_grows a b c d g : 0 < a -> 0 < b -> 0 < c -> 0 < d -> 0 <= g <= 1 ->
  a / b * exp (2 * g * ((b + c - 1) / (b + c + 1) - (a + d - 1) / (a + d + 1)))
    <= Rmax (a / b) ((1 - g) * (a / b) + g * (1 + c / b)).
Proof.
  intros A B C D G. assert (AB : 0 < a / b) by now apply Rdiv_lt_0_compat.
  rewrite !to_tanh by lra.
  assert (T : tanh (/ 2 * ln a) <= tanh (/ 2 * ln (a + d))) by (apply tanh_increasing;
    pose proof (ln_increasing a (a + d) A); lra).
  set (t := tanh (/ 2 * ln (a + d))) in *. set (s := tanh (/ 2 * ln (b + c))).
  destruct (Rle_dec a (b + c)) as [H|H].
  - eapply Rle_trans; [|apply Rmax_r]. assert (LN : ln a <= ln (b + c)) by (destruct H as [H | ->]; [left;
      now apply ln_increasing | lra]).
    pose proof (tanh_lipschitz (/ 2 * ln a) (/ 2 * ln (b + c)) ltac:(lra)) as L. fold s in L.
    apply Rle_trans with (a / b * exp (g * (ln (b + c) - ln a))).
    + apply Rmult_le_compat_l; [lra|]. apply exp_le. nra.
    + eapply Rle_trans; [apply Rmult_le_compat_l; [lra | apply exp_below_the_chord; lra]|].
      right. unfold Rminus at 2. rewrite exp_plus, exp_Ropp, !exp_ln by lra. field. lra.
  - eapply Rle_trans; [|apply Rmax_l]. pose proof (ln_increasing (b + c) a ltac:(lra) ltac:(lra)) as LN.
    pose proof (tanh_increasing (/ 2 * ln (b + c)) (/ 2 * ln a) ltac:(lra)) as L. fold s in L.
    assert (exp (2 * g * (s - t)) <= exp 0) by (apply exp_le; nra). rewrite exp_0 in *. nra.
Qed.

(** *** The list. *)
Definition ones (_ : nat) : R := 1.
Definition list_cost (i j : nat) : R := (INR i - (INR j + / 2)) ^ 2.

Section TwoPoint.
Variable lambda : R.
Hypothesis Lambda : 0 < lambda.
Notation entry := (plan lambda list_cost).
Definition rho : R := exp (- 1 / lambda).
Definition alpha (u v : nat -> R) : R := entry u v 0%nat 0%nat / entry u v 1%nat 0%nat.
Definition kappa (u v : nat -> R) : R := entry u v 1%nat 1%nat / entry u v 1%nat 0%nat.

(** The error E of a state: the sum of all |S_i - 1| and |S'_j - 1|. *)
Definition list_error (u v : nat -> R) : R := gradient 1 1 lambda list_cost ones ones u v.

Lemma entry_pos u v i j : 0 < entry u v i j. Proof. apply exp_pos. Qed.

Lemma entries u v : alpha u v = exp ((u 0%nat - u 1%nat) / lambda) /\ kappa u v = exp ((v 1%nat - v 0%nat) / lambda) /\
  entry u v 0%nat 1%nat = rho ^ 2 * (alpha u v * kappa u v) * entry u v 1%nat 0%nat.
Proof.
  assert (Al : alpha u v = exp ((u 0%nat - u 1%nat) / lambda)).
  { unfold alpha, Rdiv at 1, plan, list_cost. rewrite <- exp_Ropp, <- exp_plus. f_equal. simpl INR. field. lra. }
  assert (Ka : kappa u v = exp ((v 1%nat - v 0%nat) / lambda)).
  { unfold kappa, Rdiv at 1, plan, list_cost. rewrite <- exp_Ropp, <- exp_plus. f_equal. simpl INR. field. lra. }
  split; [exact Al | split; [exact Ka|]]. rewrite Al, Ka. unfold plan, list_cost.
  replace (rho ^ 2) with (exp (- 1 / lambda) * exp (- 1 / lambda)) by (unfold rho; ring).
  rewrite <- !exp_plus. f_equal. simpl INR. field. lra.
Qed.

Lemma ratios_pos u v : 0 < alpha u v /\ 0 < kappa u v.
Proof. destruct (entries u v) as [-> [-> _]]. split; apply exp_pos. Qed.

(** 2 (1 - rho^2 alpha kappa)/(1 + min(alpha, kappa)) <= E, without the quotient. *)
Theorem error_of_a_state u v :
  2 * (1 - rho ^ 2 * (alpha u v * kappa u v)) <= (1 + Rmin (alpha u v) (kappa u v)) * list_error u v.
Proof.
  destruct (entries u v) as [_ [_ D]]. pose proof (entry_pos u v) as P.
  pose proof (P 0 0)%nat as PA. pose proof (P 1 0)%nat as PB. pose proof (P 1 1)%nat as PC. pose proof (P 0 1)%nat as PD.
  unfold list_error, gradient, row, col, ones. simpl sum. revert D. unfold alpha, kappa.
  set (a := entry u v 0%nat 0%nat) in *. set (b := entry u v 1%nat 0%nat) in *.
  set (c := entry u v 1%nat 1%nat) in *. set (d := entry u v 0%nat 1%nat) in *. intros D.
  pose proof (error_of_four a b c d PA PB PC PD) as E1. pose proof (error_of_four c b a d PC PB PA PD) as E2.
  rewrite (Rplus_comm c d), (Rplus_comm b a), (Rplus_comm c b), (Rplus_comm d a) in E2.
  set (E := _ + _ + (_ + _)) in E1 |- *. replace (_ + _ + (_ + _)) with E in E2 by (unfold E; ring).
  apply Rmult_le_reg_r with b; [assumption|].
  replace (2 * (1 - rho ^ 2 * (a / b * (c / b))) * b) with (2 * (b - d)) by (rewrite D; ring).
  unfold Rmin. destruct Rle_dec.
  - now replace ((1 + a / b) * E * b) with ((a + b) * E) by (field; lra).
  - now replace ((1 + c / b) * E * b) with ((b + c) * E) by (field; lra).
Qed.

(** What a layer does to alpha and kappa. *)
Lemma share_range g : 0 <= g <= 2 * lambda -> 0 <= g / (2 * lambda) <= 1.
Proof. intros. split; [apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra] | apply Rle_div_l; lra]. Qed.

Lemma layer_grows gr gc u v : 0 <= gr <= 2 * lambda -> 0 <= gc <= 2 * lambda ->
  let u' := rows_head 1 lambda list_cost ones gr u v in let v' := cols_head 1 lambda list_cost ones gc u v in
  let g := gr / (2 * lambda) in let h := gc / (2 * lambda) in
  alpha u' v' <= Rmax (alpha u v) ((1 - g) * alpha u v + g * (1 + kappa u v)) /\
  kappa u' v' <= Rmax (kappa u v) ((1 - h) * kappa u v + h * (1 + alpha u v)).
Proof.
  intros Gr Gc u' v' g h. pose proof (entry_pos u v) as P.
  pose proof (ratio_grows _ _ _ _ g (P 0 0)%nat (P 1 0)%nat (P 1 1)%nat (P 0 1)%nat (share_range gr ltac:(lra))) as RA.
  pose proof (ratio_grows _ _ _ _ h (P 1 1)%nat (P 1 0)%nat (P 0 0)%nat (P 0 1)%nat (share_range gc ltac:(lra))) as RK.
  fold (alpha u v) (kappa u v) in RA, RK. destruct (entries u v) as [Al [Ka _]], (entries u' v') as [Al' [Ka' _]].
  split; [eapply Rle_trans; [right | exact RA] | eapply Rle_trans; [right | exact RK]].
  - rewrite Al', Al, <- exp_plus. f_equal. unfold u', rows_head, row, ones, g. simpl sum.
    set (x := (entry u v 1%nat 0%nat + _ - 1) / _). set (y := (entry u v 0%nat 0%nat + _ - 1) / _). field. lra.
  - rewrite Ka', Ka, <- exp_plus. f_equal. unfold v', cols_head, col, ones, h. simpl sum.
    rewrite (Rplus_comm (entry u v 0%nat 0%nat)), (Rplus_comm (entry u v 0%nat 1%nat)).
    set (x := (entry u v 1%nat 0%nat + _ - 1) / _). set (y := (entry u v 1%nat 1%nat + _ - 1) / _). field. lra.
Qed.

Lemma error_nonneg x y : 0 <= list_error x y.
Proof. unfold list_error, gradient. apply Rplus_le_le_0_compat; apply cond_pos_sum; intros; apply Rabs_pos. Qed.

(** *** Networks from (0, 0). *)
Section Networks.
Variables (u v : nat -> nat -> R).
Hypothesis Start : forall i, u O i = 0 /\ v O i = 0.

Lemma start_at_one : alpha (u O) (v O) = 1 /\ kappa (u O) (v O) = 1.
Proof.
  destruct (entries (u O) (v O)) as [-> [-> _]]. rewrite !(proj1 (Start _)), !(proj2 (Start _)), Rminus_0_r.
  unfold Rdiv. now rewrite Rmult_0_l, exp_0.
Qed.

(** One of the two ratios at a time: the other side's ratio is a layer behind. *)
Lemma chain (x y : nat -> R) : x O = 1 -> y O = 1 ->
  (forall k, if Nat.even k then x (S k) <= Rmax (x k) (1 + y k) /\ y (S k) <= y k
             else y (S k) <= Rmax (y k) (1 + x k) /\ x (S k) <= x k) ->
  forall k, if Nat.even k then x (S k) <= INR k + 2 /\ y (S k) <= INR k + 1 else y (S k) <= INR k + 2 /\ x (S k) <= INR k + 1.
Proof.
  intros X Y H. induction k as [|k IH].
  - specialize (H O). simpl in *. rewrite X, Y in H. unfold Rmax in H. destruct Rle_dec in H; lra.
  - specialize (H (S k)). rewrite S_INR. rewrite Nat.even_succ, <- Nat.negb_even in *. destruct (Nat.even k); simpl in *;
      (split; [eapply Rle_trans; [apply H | apply Rmax_lub; lra] | lra]).
Qed.

Lemma error_of_a_chain :
  (forall k, if Nat.even k
             then alpha (u (S k)) (v (S k)) <= Rmax (alpha (u k) (v k)) (1 + kappa (u k) (v k)) /\
                  kappa (u (S k)) (v (S k)) <= kappa (u k) (v k)
             else kappa (u (S k)) (v (S k)) <= Rmax (kappa (u k) (v k)) (1 + alpha (u k) (v k)) /\
                  alpha (u (S k)) (v (S k)) <= alpha (u k) (v k)) ->
  forall k, (1 <= k)%nat -> 2 / (INR k + 1) - 2 * rho ^ 2 * INR k <= list_error (u k) (v k).
Proof.
  intros H [|k] K; [lia|]. destruct start_at_one as [A0 K0].
  pose proof (chain (fun k => alpha (u k) (v k)) (fun k => kappa (u k) (v k)) A0 K0 H k) as C. cbv beta in C.
  pose proof (error_of_a_state (u (S k)) (v (S k))) as E. pose proof (error_nonneg (u (S k)) (v (S k))).
  destruct (ratios_pos (u (S k)) (v (S k))). pose proof (pos_INR k). rewrite S_INR.
  set (al := alpha (u (S k)) (v (S k))) in *. set (ka := kappa (u (S k)) (v (S k))) in *. set (e := list_error _ _) in *.
  assert (M : Rmin al ka <= INR k + 1 /\ al * ka <= (INR k + 1) * (INR k + 2)).
  { pose proof (Rmin_l al ka). pose proof (Rmin_r al ka). destruct (Nat.even k); split; nra. }
  replace (2 / (INR k + 1 + 1) - 2 * rho ^ 2 * (INR k + 1))
    with (2 * (1 - rho ^ 2 * ((INR k + 1) * (INR k + 2))) / (INR k + 2)) by (field; lra).
  apply Rle_div_l; [lra|]. pose proof (pow2_ge_0 rho). nra.
Qed.

Section Layers.
Variables (gr gc : nat -> R).
Hypothesis Steps : forall k, 0 <= gr k <= 2 * lambda /\ 0 <= gc k <= 2 * lambda.
Hypothesis U : forall k, u (S k) = rows_head 1 lambda list_cost ones (gr k) (u k) (v k).
Hypothesis V : forall k, v (S k) = cols_head 1 lambda list_cost ones (gc k) (u k) (v k).

(** W, the sum over the first k layers of the larger of their two steps, over 2 lambda. *)
Fixpoint shares (k : nat) : R := match k with O => 0 | S k => shares k + Rmax (gr k) (gc k) / (2 * lambda) end.

Lemma ratios_within k : 0 <= shares k <= INR k /\ alpha (u k) (v k) <= 1 + shares k /\ kappa (u k) (v k) <= 1 + shares k.
Proof.
  induction k as [|k [W [A K]]]; [destruct start_at_one as [-> ->]; simpl; lra|].
  destruct (Steps k) as [Gr Gc]. destruct (layer_grows _ _ (u k) (v k) Gr Gc) as [A' K']. rewrite <- U, <- V in A', K'.
  assert (M : 0 <= Rmax (gr k) (gc k) <= 2 * lambda) by (split; [apply Rle_trans with (gr k);
    [lra | apply Rmax_l] | apply Rmax_lub; lra]).
  apply share_range in M. rewrite S_INR. simpl shares.
  assert (Q : forall g, g <= Rmax (gr k) (gc k) -> g / (2 * lambda) <= Rmax (gr k) (gc k) / (2 * lambda)).
  { intros g G. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; lra | exact G]. }
  pose proof (Q _ (Rmax_l (gr k) (gc k))). pose proof (Q _ (Rmax_r (gr k) (gc k))).
  pose proof (share_range _ Gr). pose proof (share_range _ Gc).
  split; [lra | split; (eapply Rle_trans; [eassumption | apply Rmax_lub; nra])].
Qed.

(** D (i). *)
Theorem error_at_one_lambda k : 2 * (1 - rho ^ 2 * (1 + shares k) ^ 2) / (2 + shares k) <= list_error (u k) (v k).
Proof.
  destruct (ratios_within k) as [W [A K]]. destruct (ratios_pos (u k) (v k)) as [A0 K0].
  pose proof (error_of_a_state (u k) (v k)) as E. pose proof (error_nonneg (u k) (v k)).
  apply Rle_div_l; [lra|]. pose proof (Rmin_l (alpha (u k) (v k)) (kappa (u k) (v k))).
  assert (alpha (u k) (v k) * kappa (u k) (v k) <= (1 + shares k) ^ 2).
  { replace ((1 + shares k) ^ 2) with ((1 + shares k) * (1 + shares k)) by ring. apply Rmult_le_compat; lra. }
  pose proof (pow2_ge_0 rho). nra.
Qed.

Corollary error_after_k_layers k : 2 / (INR k + 2) - 2 * rho ^ 2 * (INR k + 2) <= list_error (u k) (v k).
Proof.
  destruct (ratios_within k) as [W _]. pose proof (error_at_one_lambda k) as E. pose proof (error_nonneg (u k) (v k)).
  apply Rle_div_l in E; [|lra]. pose proof (pow2_ge_0 rho). set (s := shares k) in *. set (d := INR k + 2) in *.
  replace (2 / d - 2 * rho ^ 2 * d) with (2 * (1 - rho ^ 2 * d ^ 2) / d) by (field; unfold d; lra).
  apply Rle_div_l; [unfold d; lra|].
  assert ((1 + s) ^ 2 <= d ^ 2) by (apply pow_incr; unfold d; lra). assert (2 + s <= d) by (unfold d; lra). nra.
Qed.

(** So the error eps >= 3 rho takes W >= 3/(2 eps) - 2, and k >= W. *)
Theorem depth_at_one_lambda k e : 3 * rho <= e -> list_error (u k) (v k) <= e -> 3 / (2 * e) - 2 <= shares k <= INR k.
Proof.
  intros E H. destruct (ratios_within k) as [W _]. split; [|lra]. pose proof (exp_pos (- 1 / lambda) : 0 < rho) as P.
  pose proof (error_at_one_lambda k) as F. set (D := 2 + shares k). assert (HD : 2 <= D) by (unfold D; lra).
  replace (1 + shares k) with (D - 1) in F by (unfold D; ring). fold D in F.
  assert (G : 2 * (1 - rho ^ 2 * (D - 1) ^ 2) <= e * D) by (apply Rle_div_l in F; nra).
  apply Rle_minus_l. replace (shares k + 2) with D by (unfold D; ring). apply Rle_div_l; [lra|].
  apply Rnot_lt_le. intros N. assert (rho * D <= 1 / 2) by nra. assert (0 <= rho * (D - 1)) by nra.
  assert (rho ^ 2 * (D - 1) ^ 2 <= / 4) by (rewrite <- Rpow_mult_distr; nra). lra.
Qed.

(** Alternating heads, the rows first. *)
Theorem error_with_alternating_heads k : (forall k, if Nat.even k then gc k = 0 else gr k = 0) -> (1 <= k)%nat ->
  2 / (INR k + 1) - 2 * rho ^ 2 * INR k <= list_error (u k) (v k).
Proof.
  intros T. apply error_of_a_chain. intros l. specialize (T l). destruct (Steps l) as [Gr Gc].
  destruct (layer_grows _ _ (u l) (v l) Gr Gc) as [A K]. rewrite <- U, <- V in A, K.
  destruct (ratios_pos (u l) (v l)). pose proof (share_range _ Gr). pose proof (share_range _ Gc).
  assert (Z : forall x y, Rmax x ((1 - 0 / (2 * lambda)) * x + 0 / (2 * lambda) * y) = x).
  { intros. unfold Rdiv. rewrite Rmult_0_l, Rmax_left; lra. }
  assert (B : forall x y g, 0 <= g <= 1 -> Rmax x ((1 - g) * x + g * y) <= Rmax x y).
  { intros x y g G. pose proof (Rmax_l x y). pose proof (Rmax_r x y). apply Rmax_lub; nra. }
  destruct (Nat.even l); rewrite T, Z in *; (split; [|assumption]); (eapply Rle_trans; [eassumption | now apply B]).
Qed.
End Layers.
End Networks.
End TwoPoint.
