(** Theorem E (b) of docs/limits.md: alternating heads at lambda = 8 max C, from (0, 0), and the distance of u_0 - u_1 and
    v_1 - v_0 from the solution's.  T is tanh(z/2) = (S - 1)/(S + 1) for a sum S. *)
From Coq Require Import Reals Lra Lia.
From Coquelicot Require Import Coquelicot.
From Interval Require Import Tactic.
From OTformer Require Import Tanh Layer NonExpansive Birkhoff TheoremA HilbertRate TwoPoint Annealing.
Open Scope R_scope.

(** *** Numbers. *)
Definition T (S : R) : R := (S - 1) / (S + 1).

(** The head takes its own sum S to S e^{-2T}, near 1. *)
Lemma head_corrects S t : 0 < S -> Rabs (T S) <= t -> t < 1 -> Rabs (S * exp (- (2 * T S)) - 1) <= t ^ 2 / (1 - t ^ 2).
Proof.
  intros HS B L. assert (T0 : 0 <= t) by (eapply Rle_trans; [apply Rabs_pos | exact B]).
  assert (E : S = (1 + T S) / (1 - T S)) by (unfold T; field; lra).
  assert (BT : -1 < T S < 1) by (revert B; unfold Rabs; destruct Rcase_abs; lra).
  revert E B BT. generalize (T S). intros x -> B BT. clear HS.
  assert (X : x ^ 2 <= t ^ 2) by (rewrite <- (pow2_abs x); apply pow_incr; split; [apply Rabs_pos | exact B]).
  assert (Dx : 0 < 1 - x ^ 2) by nra. assert (Dt : 0 < 1 - t ^ 2) by nra.
  assert (M : x ^ 2 / (1 - x ^ 2) <= t ^ 2 / (1 - t ^ 2)).
  { replace (x ^ 2 / (1 - x ^ 2)) with (/ (1 - x ^ 2) - 1) by (field; lra).
    replace (t ^ 2 / (1 - t ^ 2)) with (/ (1 - t ^ 2) - 1) by (field; lra).
    assert (/ (1 - x ^ 2) <= / (1 - t ^ 2)) by (apply Rinv_le_contravar; lra). lra. }
  eapply Rle_trans; [|exact M]. pose proof (exp_ineq1_le x) as P. pose proof (exp_ineq1_le (- x)) as N.
  (* (1 + x) e^{-x} and (1 - x) e^x are at most 1 and at least 1 - x^2. *)
  assert (EI : exp x * exp (- x) = 1) by (rewrite <- exp_plus, Rplus_opp_r; apply exp_0).
  pose proof (exp_pos x). pose proof (exp_pos (- x)).
  set (p := (1 + x) * exp (- x)). set (q := (1 - x) * exp x).
  assert (Pp : 1 - x ^ 2 <= p <= 1) by (unfold p; split; nra).
  assert (Qq : 1 - x ^ 2 <= q <= 1) by (unfold q; split; nra).
  replace ((1 + x) / (1 - x) * exp (- (2 * x)) - 1) with ((p - q) / q).
  2: { unfold p, q. replace (- (2 * x)) with (- x + - x) by ring. rewrite exp_plus. replace (exp x) with (/ exp (- x)).
       - field. lra.
       - rewrite exp_Ropp. field. lra. }
  unfold Rdiv. rewrite Rabs_mult, (Rabs_right (/ q)) by (apply Rle_ge; left; apply Rinv_0_lt_compat; lra).
  apply Rmult_le_compat; [apply Rabs_pos | left; apply Rinv_0_lt_compat; lra | apply Rabs_le;
    lra | apply Rinv_le_contravar; lra].
Qed.

(** x + y = p + q, where p and q are within r of 1, and T x and T y are within d of each other. *)
Lemma other_side x y p q r d : 0 < x -> 0 < y -> x + y = p + q -> Rabs (p - 1) <= r -> Rabs (q - 1) <= r -> r < 1 ->
  Rabs (T x - T y) <= d -> Rabs (T x) <= r + d /\ Rabs (T y) <= r + d.
Proof.
  intros X Y E P Q R D.
  assert (B : - r <= p - 1 <= r /\ - r <= q - 1 <= r) by (revert P Q; unfold Rabs; repeat destruct Rcase_abs; lra).
  assert (Low : forall z, 0 < z -> 1 - r <= z -> - r <= T z).
  { intros z Z H. unfold T. apply Rle_div_r; nra. }
  assert (High : forall z, 0 < z -> z <= 1 + r -> T z <= r).
  { intros z Z H. unfold T. apply Rle_div_l; nra. }
  assert (G : (- r <= T x \/ - r <= T y) /\ (T x <= r \/ T y <= r)).
  { split; [destruct (Rle_dec (1 - r) x); [left | right]; apply Low; lra
           |destruct (Rle_dec x (1 + r)); [left | right]; apply High; lra]. }
  assert (Dd : - d <= T x - T y <= d) by (revert D; unfold Rabs; destruct Rcase_abs; lra).
  split; apply Rabs_le; lra.
Qed.

(** *** One layer. *)
Section Hot.
Variables (C : nat -> nat -> R) (largest : R).
Hypothesis Costs : forall i j, (i <= 1)%nat -> (j <= 1)%nat -> 0 <= C i j <= largest.
Hypothesis Largest : 0 < largest.
Let lambda : R := 8 * largest.
Let row' (u v : nat -> R) (i : nat) : R := row 1 lambda C u v i.
Let col' (u v : nat -> R) (j : nat) : R := col 1 lambda C u v j.
Let rows (u v : nat -> R) : nat -> R := rows_head 1 lambda C ones (2 * lambda) u v.
Let cols (u v : nat -> R) : nat -> R := cols_head 1 lambda C ones (2 * lambda) u v.

Lemma lambda_pos : 0 < lambda. Proof. unfold lambda. lra. Qed.
Lemma row_pos u v i : 0 < row' u v i. Proof. apply sum_pos; intros; apply exp_pos. Qed.
Lemma col_pos u v j : 0 < col' u v j. Proof. apply sum_pos; intros; apply exp_pos. Qed.
Lemma same_total u v : row' u v 0 + row' u v 1 = col' u v 0 + col' u v 1.
Proof. unfold row', col', row, col. simpl sum_f_R0. ring. Qed.

Lemma near_one_all u v t : Rabs (T (row' u v 0)) <= t -> Rabs (T (row' u v 1)) <= t -> rows_within 1 1 lambda C ones u v t.
Proof. intros A B [|[|i]] I; try lia; [exact A | exact B]. Qed.
Lemma near_one_all' u v t : Rabs (T (col' u v 0)) <= t -> Rabs (T (col' u v 1)) <= t -> cols_within 1 1 lambda C ones u v t.
Proof. intros A B [|[|i]] I; try lia; [exact A | exact B]. Qed.

(** The two T of one side differ by at most (|e| + |f|/16)/(2 lambda). *)
Lemma spread_rows u v : Rabs (T (row' u v 0) - T (row' u v 1)) <= (Rabs (slow_u C u) + Rabs (slow_v C v) / 16) / (2 * lambda).
Proof.
  pose proof lambda_pos as L. destruct (solution_for_every_lambda C lambda L) as [us [vs [S _]]].
  destruct (all_within_one 1 1 lambda C ones ones u v us vs S) as [W _].
  destruct (rows_mix C lambda L (2 * lambda) 1 u v ltac:(lra) W) as [q [d [Q [Q0 [D E]]]]].
  pose proof (eta_when_hot C largest lambda Costs ltac:(unfold lambda in *; lra)) as K. set (k := eta _) in *.
  assert (Q1 : 2 * lambda / (2 * lambda) = 1) by (field; lra). rewrite Q1 in Q.
  assert (X : 2 * lambda * (T (row' u v 0) - T (row' u v 1)) = q * (slow_u C u - d)).
  { revert E. unfold slow_u, rows_head, T, row', ones. set (x := (_ - 1) / _). set (y := (_ - 1) / _). intros E. lra. }
  apply Rle_div_r; [lra|].
  rewrite <- (Rabs_right (2 * lambda)) at 1 by lra. rewrite <- Rabs_mult, Rmult_comm, X, Rabs_mult, (Rabs_right q) by lra.
  pose proof (Rabs_triang (slow_u C u) (- d)) as Tr. rewrite Rabs_Ropp in Tr. fold (slow_u C u - d) in Tr.
  pose proof (Rabs_pos (slow_u C u - d)). pose proof (Rabs_pos (slow_v C v)). nra.
Qed.

Lemma spread_cols u v : Rabs (T (col' u v 0) - T (col' u v 1)) <= (Rabs (slow_v C v) + Rabs (slow_u C u) / 16) / (2 * lambda).
Proof.
  pose proof lambda_pos as L. destruct (solution_for_every_lambda C lambda L) as [us [vs [S _]]].
  destruct (all_within_one 1 1 lambda C ones ones u v us vs S) as [_ W].
  destruct (cols_mix C lambda (2 * lambda) 1 u v L ltac:(lra) W) as [q [d [Q [Q0 [D E]]]]].
  pose proof (eta_when_hot C largest lambda Costs ltac:(unfold lambda in *; lra)) as K. set (k := eta _) in *.
  assert (Q1 : 2 * lambda / (2 * lambda) = 1) by (field; lra). rewrite Q1 in Q.
  assert (X : 2 * lambda * (T (col' u v 0) - T (col' u v 1)) = - (q * (slow_v C v - d))).
  { revert E. unfold slow_v, cols_head, T, col', ones. set (x := (_ - 1) / _). set (y := (_ - 1) / _). intros E. lra. }
  apply Rle_div_r; [lra|].
  rewrite <- (Rabs_right (2 * lambda)) at 1 by lra.
    rewrite <- Rabs_mult, Rmult_comm, X, Rabs_Ropp, Rabs_mult, (Rabs_right q) by lra.
  pose proof (Rabs_triang (slow_v C v) (- d)) as Tr. rewrite Rabs_Ropp in Tr. fold (slow_v C v - d) in Tr.
  pose proof (Rabs_pos (slow_v C v - d)). pose proof (Rabs_pos (slow_u C u)). nra.
Qed.

Lemma rows_corrected u v i : row' (rows u v) v i = row' u v i * exp (- (2 * T (row' u v i))).
Proof.
  pose proof lambda_pos. rewrite (Rmult_comm (row' u v i)). unfold row' at 1 3, row. rewrite <- sum_scale.
  apply sum_eq; intros j _.
  unfold plan, rows, rows_head, T, row', ones. rewrite <- exp_plus. f_equal. set (x := (_ - 1) / _). field. lra.
Qed.

Lemma cols_corrected u v j : col' u (cols u v) j = col' u v j * exp (- (2 * T (col' u v j))).
Proof.
  pose proof lambda_pos. rewrite (Rmult_comm (col' u v j)). unfold col' at 1 3, col. rewrite <- sum_scale.
  apply sum_eq; intros i _.
  unfold plan, cols, cols_head, T, col', ones. rewrite <- exp_plus. f_equal. set (x := (_ - 1) / _). field. lra.
Qed.

(** (0, 0): T of the rows is at most 0.213 in absolute value. *)
Lemma start_T u v i : (forall k, u k = 0 /\ v k = 0) -> (i <= 1)%nat -> Rabs (T (row' u v i)) <= 213 / 1000.
Proof.
  intros Z I. assert (E : forall j, (j <= 1)%nat -> exp (- (9 / 8)) <= plan lambda C u v i j <= exp (- 1)).
  { intros j J. pose proof (Costs i j I J) as B. unfold plan. rewrite (proj1 (Z i)), (proj2 (Z j)).
    assert (P : 0 <= C i j / lambda <= / 8).
    { unfold lambda. split; [apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra] | apply Rle_div_l; lra]. }
    replace ((0 + 0 - C i j) / lambda - 1) with (- (C i j / lambda) - 1) by (pose proof lambda_pos; field; lra).
    split; apply exp_le; lra. }
  pose proof (E 0 ltac:(lia))%nat as E0. pose proof (E 1 ltac:(lia))%nat as E1.
  assert (Lo : 649 / 1000 <= 2 * exp (- (9 / 8))) by interval with (i_prec 60).
  assert (Hi : 2 * exp (- 1) <= 736 / 1000) by interval with (i_prec 60).
  assert (S : 649 / 1000 <= row' u v i <= 736 / 1000) by (unfold row', row; simpl sum_f_R0; lra).
  unfold T. apply Rabs_le. split; [apply Rle_div_r | apply Rle_div_l]; lra.
Qed.
(** One layer, of either head, after one of the other. *)
Definition near (r : R) (S : nat -> R) : Prop := Rabs (S 0%nat - 1) <= r /\ Rabs (S 1%nat - 1) <= r.

Lemma corrected t S S' : (forall i, 0 < S i) -> (forall i, S' i = S i * exp (- (2 * T (S i)))) -> t < 1 ->
  Rabs (T (S 0%nat)) <= t -> Rabs (T (S 1%nat)) <= t -> near (t ^ 2 / (1 - t ^ 2)) S'.
Proof. intros P E L A B. split; rewrite E; now apply head_corrects. Qed.

Lemma near_weaker r r' S : r <= r' -> near r S -> near r' S.
Proof. unfold near. lra. Qed.

Lemma by_largest x y c : x <= c * (16 * largest) -> y = 2 * lambda -> x / y <= c.
Proof. intros X ->. unfold lambda. apply Rle_div_l; lra. Qed.

Lemma next_rows u v X : X <= largest / 40 -> Rabs (slow_u C u) <= 12 * X -> Rabs (slow_v C v) <= X ->
  near (/ 50) (col' u v) ->
  Rabs (slow_u C (rows u v)) <= X / 12 /\ near (/ 50) (row' (rows u v) v).
Proof.
  intros HX E F [N0 N1]. pose proof lambda_pos as L.
  assert (D : Rabs (T (row' u v 0) - T (row' u v 1)) <= 19 / 1000)
    by (eapply Rle_trans; [apply spread_rows | apply by_largest; [lra | reflexivity]]).
  destruct (other_side _ _ _ _ (/ 50) _ (row_pos u v 0) (row_pos u v 1) (same_total u v) N0 N1 ltac:(lra) D) as [A B].
  split; [|apply (near_weaker ((39 / 1000) ^ 2 / (1 - (39 / 1000) ^ 2))); [lra|]].
  - apply (hot_layer_divides_by_twelve C largest lambda Costs ltac:(unfold lambda; lra)); try assumption.
    apply near_one_all; lra.
  - apply (corrected _ (row' u v)); [apply row_pos | apply rows_corrected | lra | lra | lra].
Qed.

Lemma next_cols u v X : X <= largest / 40 -> Rabs (slow_v C v) <= 12 * X -> Rabs (slow_u C u) <= X ->
  near (/ 50) (row' u v) ->
  Rabs (slow_v C (cols u v)) <= X / 12 /\ near (/ 50) (col' u (cols u v)).
Proof.
  intros HX E F [N0 N1]. pose proof lambda_pos as L.
  assert (D : Rabs (T (col' u v 0) - T (col' u v 1)) <= 19 / 1000)
    by (eapply Rle_trans; [apply spread_cols | apply by_largest; [lra | reflexivity]]).
  destruct (other_side _ _ _ _ (/ 50) _ (col_pos u v 0) (col_pos u v 1) (eq_sym (same_total u v)) N0 N1 ltac:(lra) D) as [A B].
  split; [|apply (near_weaker ((39 / 1000) ^ 2 / (1 - (39 / 1000) ^ 2))); [lra|]].
  - apply (hot_layer_divides_by_twelve C largest lambda Costs ltac:(unfold lambda; lra)); try assumption.
    apply near_one_all'; lra.
  - apply (corrected _ (col' u v)); [apply col_pos | apply cols_corrected | lra | lra | lra].
Qed.

Lemma mix_bound q d x y k t s : 1 * (1 - t * t) <= q <= 1 -> 0 <= q -> 0 <= k <= / 16 -> Rabs d <= k * Rabs y -> t * t <= s ->
  Rabs ((1 - q) * x + q * d) <= s * Rabs x + Rabs y / 16.
Proof.
  intros Q Q0 K D S. eapply Rle_trans; [apply Rabs_triang|]. rewrite !Rabs_mult, (Rabs_right (1 - q)), (Rabs_right q) by lra.
  pose proof (Rabs_pos x). pose proof (Rabs_pos y). pose proof (Rabs_pos d).
  assert (Rabs d <= Rabs y / 16) by nra. assert ((1 - q) * Rabs x <= s * Rabs x) by (apply Rmult_le_compat_r; lra). nra.
Qed.

(** *** The network. *)
Variables (u v : nat -> nat -> R).
Hypothesis Start : forall i, u O i = 0 /\ v O i = 0.
Hypothesis Even : forall k, Nat.even k = true -> u (S k) = rows (u k) (v k) /\ v (S k) = v k.
Hypothesis Odd : forall k, Nat.even k = false -> v (S k) = cols (u k) (v k) /\ u (S k) = u k.

Lemma first_two_layers : Rabs (slow_v C (v 2%nat)) <= largest / 40 /\ Rabs (slow_u C (u 2%nat)) <= 12 * (largest / 40) /\
  near (/ 50) (col' (u 2%nat) (v 2%nat)).
Proof.
  destruct (Even 0 eq_refl) as [U1 V1], (Odd 1 eq_refl) as [V2 U2]. pose proof lambda_pos as L.
  pose proof (eta_when_hot C largest lambda Costs ltac:(unfold lambda in *; lra)) as K. set (k := eta _) in *.
  assert (Q1 : 2 * lambda / (2 * lambda) = 1) by (field; lra).
  assert (E0 : Rabs (slow_u C (u O)) <= largest /\ Rabs (slow_v C (v O)) <= largest).
  { pose proof (Costs 0 0 ltac:(lia) ltac:(lia)). pose proof (Costs 0 1 ltac:(lia) ltac:(lia)).
    pose proof (Costs 1 0 ltac:(lia) ltac:(lia)). pose proof (Costs 1 1 ltac:(lia) ltac:(lia)).
    unfold slow_u, slow_v. rewrite !(proj1 (Start _)), !(proj2 (Start _)). split; apply Rabs_le; lra. }
  pose proof (start_T (u O) (v O) 0 Start ltac:(lia)) as A0. pose proof (start_T (u O) (v O) 1 Start ltac:(lia)) as A1.
  destruct (rows_mix C lambda L (2 * lambda) _ (u O) (v O) ltac:(lra) (near_one_all _ _ _ A0 A1)) as [q [d [Q [Q0 [D E]]]]].
  rewrite Q1 in Q. fold k in D. change (rows_head 1 lambda C ones (2 * lambda) (u O) (v O)) with (rows (u O) (v O)) in E.
  pose proof (mix_bound q d (slow_u C (u O)) (slow_v C (v O)) k (213 / 1000) (46 / 1000) Q Q0 K D ltac:(lra)) as E1.
  rewrite <- E, <- U1 in E1.
  pose proof (corrected (213 / 1000) (row' (u O) (v O)) (row' (rows (u O) (v O)) (v O)) (row_pos _ _) (rows_corrected _ _) ltac:(lra) A0 A1) as N1.
  apply (near_weaker _ (48 / 1000)) in N1; [|lra]. rewrite <- U1, <- V1 in N1.
  rewrite <- V1 in E0, E1. set (x := u 1%nat) in *. set (y := v 1%nat) in *. destruct N1 as [N1 N1'].
  assert (Sp : Rabs (T (col' x y 0) - T (col' x y 1)) <= 63 / 1000).
  { eapply Rle_trans; [apply spread_cols | apply by_largest; [lra | reflexivity]]. }
  destruct (other_side _ _ _ _ (48 / 1000) _ (col_pos x y 0) (col_pos x y 1) (eq_sym (same_total x y)) N1 N1' ltac:(lra) Sp) as [B0 B1].
  apply Rle_trans with (r3 := 111 / 1000) in B0; [|lra]. apply Rle_trans with (r3 := 111 / 1000) in B1; [|lra].
  destruct (cols_mix C lambda (2 * lambda) _ x y L ltac:(lra) (near_one_all' _ _ _ B0 B1)) as [q' [d' [Q' [Q0' [D' E']]]]].
  rewrite Q1 in Q'. fold k in D'. change (cols_head 1 lambda C ones (2 * lambda) x y) with (cols x y) in E'.
  pose proof (mix_bound q' d' (slow_v C y) (slow_u C x) k (111 / 1000) (125 / 10000) Q' Q0' K D' ltac:(lra)) as E2.
  rewrite <- E', <- V2 in E2.
  pose proof (corrected (111 / 1000) (col' x y) (col' x (cols x y)) (col_pos _ _) (cols_corrected _ _) ltac:(lra) B0 B1) as N2.
  apply (near_weaker _ (/ 50)) in N2; [|lra]. rewrite <- V2 in N2. rewrite U2.
  split; [lra | split; [lra | exact N2]].
Qed.

(** E (b): after layer k + 2 the one that this layer has changed is at most (L/40) 12^{-k}. *)
Theorem slow_falls_by_twelve k : if Nat.even k then Rabs (slow_v C (v (2 + k)%nat)) <= largest / 40 * (/ 12) ^ k
  else Rabs (slow_u C (u (2 + k)%nat)) <= largest / 40 * (/ 12) ^ k.
Proof.
  assert (H : let X := largest / 40 * (/ 12) ^ k in X <= largest / 40 /\
    if Nat.even k then Rabs (slow_v C (v (2 + k)%nat)) <= X /\ Rabs (slow_u C (u (2 + k)%nat)) <= 12 * X /\
      near (/ 50) (col' (u (2 + k)%nat) (v (2 + k)%nat))
    else Rabs (slow_u C (u (2 + k)%nat)) <= X /\ Rabs (slow_v C (v (2 + k)%nat)) <= 12 * X /\
      near (/ 50) (row' (u (2 + k)%nat) (v (2 + k)%nat))).
  { induction k as [|k [IX IH]].
    - simpl pow. rewrite Rmult_1_r. split; [lra | exact first_two_layers].
    - rewrite Nat.even_succ, <- Nat.negb_even. specialize (Even (2 + k)). specialize (Odd (2 + k)).
      change (Nat.even (2 + k)) with (Nat.even k) in Even, Odd. change (2 + S k)%nat with (S (2 + k)).
      set (X := largest / 40 * (/ 12) ^ k) in *. replace (largest / 40 * (/ 12) ^ S k) with (X / 12) by (unfold X;
        simpl pow; field).
      assert (0 <= X) by (apply Rmult_le_pos; [lra | apply pow_le; lra]). split; [lra|].
      destruct (Nat.even k); simpl negb; cbv iota.
      + destruct (Even eq_refl) as [-> ->], IH as [F [E N]], (next_rows _ _ X IX E F N). split; [|split]; lra || assumption.
      + destruct (Odd eq_refl) as [-> ->], IH as [E [F N]], (next_cols _ _ X IX F E N). split; [|split]; lra || assumption. }
  destruct H as [_ H]. destruct (Nat.even k); apply H.
Qed.
End Hot.
