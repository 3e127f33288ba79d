(** Theorem L of docs/theorems.md: a layer contracts Hilbert's distance to the solution.

    With e = (u - us)/lambda, f = (v - vs)/lambda, m = max(osc e, osc f) and all |tanh(z/2)|, |tanh(z'/2)| <= t, steps up to
    2 lambda, gamma the shorter one:
        m+ <= (1 - gamma/(2 lambda) (1 - t^2)(1 - eta)) m.
    For z_i = e_i + h_i with h_i = log sum_j (P*_ij/a_i) e^{f_j}, and osc h <= eta osc f by Birkhoff.  With w = gamma/(2 lambda)
    and q = w kappa, 1 - t^2 <= kappa <= 1, a head does e_i+ - e_l+ = (1 - q)(e_i - e_l) + q (h_l - h_i).  Any n and m, any
    positive weights, any costs.  Layers one after the other are in HilbertRuns.v. *)
From Coq Require Import Reals Lra Lia.
From OTformer Require Import Tanh Layer Birkhoff TheoremA.
Open Scope R_scope.

(** *** The statement's words. *)
Definition solution n m lambda C a b us vs : Prop :=
  (forall i, (i <= n)%nat -> row m lambda C us vs i = a i) /\ (forall j, (j <= m)%nat -> col n lambda C us vs j = b j).

(** phi bounds the logarithms of the cross ratios of e^{-C/lambda}. *)
Definition cross_ratios n m lambda (C : nat -> nat -> R) phi : Prop := 0 <= phi /\
  forall i l j h, (i <= n)%nat -> (l <= n)%nat -> (j <= m)%nat -> (h <= m)%nat -> C i h + C l j - C i j - C l h <= lambda * phi.

(** t bounds |tanh(z/2)| = |S - a|/(S + a) for all rows; for all columns. *)
Definition rows_within n m lambda C a u v t : Prop := forall i, (i <= n)%nat ->
  Rabs ((row m lambda C u v i - a i) / (row m lambda C u v i + a i)) <= t.
Definition cols_within n m lambda C b u v t : Prop := forall j, (j <= m)%nat ->
  Rabs ((col n lambda C u v j - b j) / (col n lambda C u v j + b j)) <= t.

(** Hilbert's distance of (e^{u/lambda}, e^{v/lambda}) from the solution's: the larger of the two sides. *)
Definition hilbert n m lambda (us vs u v : nat -> R) : R :=
  Rmax (osc (fun i => (u i - us i) / lambda) n) (osc (fun j => (v j - vs j) / lambda) m).

(** What a head with step 2 lambda w multiplies it by, at most. *)
Definition factor w t phi : R := Rmax (1 - w * (1 - t * t) * (1 - eta phi)) (w * (1 + eta phi) - 1).

Lemma factor_short w t phi : 0 <= phi -> 0 <= w <= 1 -> factor w t phi = 1 - w * (1 - t * t) * (1 - eta phi).
Proof.
  intros Phi W. apply Rmax_left. pose proof (eta_range phi Phi) as E. set (x := eta phi) in *.
  assert (0 <= w * (1 - x)) by (apply Rmult_le_pos; lra).
  assert (0 <= t * t * (w * (1 - x))) by (apply Rmult_le_pos; [apply Rle_0_sqr | lra]). lra.
Qed.

(** *** One head. *)
Lemma slope x y t : Rabs (tanh x) <= t -> Rabs (tanh y) <= t ->
  exists k, 1 - t * t <= k <= 1 /\ 0 <= k /\ tanh x - tanh y = k * (x - y).
Proof.
  intros X Y. assert (T : 0 <= t) by (pose proof (Rabs_pos (tanh x)); lra).
  assert (B : forall a b, a < b -> Rabs (tanh a) <= t -> Rabs (tanh b) <= t ->
    exists k, 1 - t * t <= k <= 1 /\ 0 <= k /\ tanh b - tanh a = k * (b - a)).
  { intros a b L A B.
    destruct (MVT_cor2 tanh (fun s => 1 - tanh s * tanh s) a b L) as [c [E [C1 C2]]]; [intros; apply tanh_derivative|].
    exists (1 - tanh c * tanh c).
    pose proof (tanh_increasing a c ltac:(lra)). pose proof (tanh_increasing c b ltac:(lra)). pose proof (tanh_bounds c).
    assert (- t <= tanh a <= t) by (revert A; unfold Rabs; destruct Rcase_abs; lra).
    assert (- t <= tanh b <= t) by (revert B; unfold Rabs; destruct Rcase_abs; lra).
    repeat split; [nra | nra | nra | exact E]. }
  destruct (Rtotal_order x y) as [L|[E|G]].
  - destruct (B x y L X Y) as [k [K [P E]]]. exists k. repeat split; lra.
  - subst. exists 1. repeat split; [nra | lra | lra | ring].
  - exact (B y x G Y X).
Qed.

(** h_i = log sum_j (k_ij/a_i) e^{f_j} oscillates by at most eta osc f. *)
Lemma mean_close n m (k : nat -> nat -> R) (a f : nat -> R) phi : 0 <= phi ->
  (forall i j, (i <= n)%nat -> (j <= m)%nat -> 0 < k i j) ->
  (forall i, (i <= n)%nat -> sum (k i) m = a i) ->
  (forall i l j h, (i <= n)%nat -> (l <= n)%nat -> (j <= m)%nat -> (h <= m)%nat ->
     k i j * k l h <= exp phi * (k i h * k l j)) ->
  forall i l, (i <= n)%nat -> (l <= n)%nat ->
  ln (sum (fun j => k l j / a l * exp (f j)) m) - ln (sum (fun j => k i j / a i * exp (f j)) m) <= eta phi * osc f m.
Proof.
  intros Phi Pos Row Cross i l I L.
  assert (A : forall i, (i <= n)%nat -> 0 < a i) by (intros r Hr; rewrite <- Row by assumption; apply sum_pos; auto).
  assert (Sp : forall i, (i <= n)%nat -> sum (fun j => k i j / a i) m = 1).
  { intros r Hr. pose proof (A r Hr). transitivity (/ a r * sum (k r) m); [|rewrite Row by assumption; apply Rinv_l; lra].
    rewrite <- sum_scale. apply sum_eq; intros; unfold Rdiv; ring. }
  apply Rle_trans with (eta phi * osc f m).
  2: { pose proof (Rmult_le_pos _ _ (proj1 (eta_range phi Phi)) (osc_pos f m)). lra. }
  rewrite eta_root. unfold osc.
  replace (top f m + top (fun j => - f j) m) with (top f m - - top (fun j => - f j) m) by ring.
  apply (birkhoff m (fun j => k l j / a l) (fun j => k i j / a i)); auto.
  - replace 1 with (exp 0) by apply exp_0.
    destruct Phi as [Phi| <-]; [left; apply exp_increasing; lra | right; f_equal; lra].
  - intros j J. split; apply Rdiv_lt_0_compat; auto.
  - intros j h J H. rewrite <- exp_plus. replace (phi / 2 + phi / 2) with phi by field.
    pose proof (A i I). pose proof (A l L). specialize (Cross l i j h L I J H).
    replace (k l j / a l * (k i h / a i)) with (/ a l * / a i * (k l j * k i h)) by (field; lra).
    replace (exp phi * (k l h / a l * (k i j / a i))) with (/ a l * / a i * (exp phi * (k l h * k i j))) by (field; lra).
    apply Rmult_le_compat_l; [|assumption]. left; apply Rmult_lt_0_compat; now apply Rinv_0_lt_compat.
  - intros j J. pose proof (top_above f m j J). pose proof (top_above (fun j => - f j) m j J) as T. simpl in T. lra.
Qed.

Lemma osc_ext f g k : (forall i, (i <= k)%nat -> f i = g i) -> osc f k <= osc g k.
Proof. intros H. apply osc_below; intros i l I L. rewrite (H i I), (H l L). now apply osc_above. Qed.

Lemma hilbert_pos n m lambda us vs u v : 0 <= hilbert n m lambda us vs u v.
Proof. eapply Rle_trans; [apply osc_pos | apply Rmax_l]. Qed.

(** |x| <= M and |y| <= eta M are mixed with 1 - q and q; q may be above 1. *)
Lemma mixture q w k eta M x y : 0 <= eta < 1 -> 0 <= q -> w * k <= q <= w -> 0 <= M -> x <= M -> - x <= M ->
  y <= eta * M -> - y <= eta * M -> (1 - q) * x + q * y <= Rmax (1 - w * k * (1 - eta)) (w * (1 + eta) - 1) * M.
Proof.
  intros E Q K M0 X X' Y Y'.
  assert (q * y <= q * (eta * M)) by (apply Rmult_le_compat_l; assumption).
  destruct (Rle_dec q 1) as [S|S].
  - apply Rle_trans with ((1 - w * k * (1 - eta)) * M); [|apply Rmult_le_compat_r; [assumption | apply Rmax_l]].
    assert ((1 - q) * x <= (1 - q) * M) by (apply Rmult_le_compat_l; lra).
    assert (0 <= (q - w * k) * ((1 - eta) * M)) by (apply Rmult_le_pos; [lra | apply Rmult_le_pos; lra]). lra.
  - apply Rle_trans with ((w * (1 + eta) - 1) * M); [|apply Rmult_le_compat_r; [assumption | apply Rmax_r]].
    assert ((q - 1) * - x <= (q - 1) * M) by (apply Rmult_le_compat_l; lra).
    assert (0 <= (w - q) * ((1 + eta) * M)) by (apply Rmult_le_pos; [lra | apply Rmult_le_pos; lra]). lra.
Qed.

(** A head with step 2 lambda w, at two of its points: q is w times the slope of tanh between them. *)
Lemma head_moves n m (k : nat -> nat -> R) (a e f z : nat -> R) phi w t : 0 <= phi ->
  (forall i j, (i <= n)%nat -> (j <= m)%nat -> 0 < k i j) ->
  (forall i, (i <= n)%nat -> sum (k i) m = a i) ->
  (forall i l j h, (i <= n)%nat -> (l <= n)%nat -> (j <= m)%nat -> (h <= m)%nat ->
     k i j * k l h <= exp phi * (k i h * k l j)) ->
  (forall i, (i <= n)%nat -> z i = ln (sum (fun j => k i j * exp (e i + f j)) m / a i)) ->
  0 <= w -> (forall i, (i <= n)%nat -> Rabs (tanh (z i / 2)) <= t) ->
  forall i l, (i <= n)%nat -> (l <= n)%nat -> exists q d, w * (1 - t * t) <= q <= w /\ 0 <= q /\
    d <= eta phi * osc f m /\ - d <= eta phi * osc f m /\
    e i - 2 * w * tanh (z i / 2) - (e l - 2 * w * tanh (z l / 2)) = (1 - q) * (e i - e l) + q * d.
Proof.
  intros Phi Pos Row Cross Z W T i l I L.
  assert (A : forall i, (i <= n)%nat -> 0 < a i) by (intros r Hr; rewrite <- Row by assumption; apply sum_pos; auto).
  set (h := fun i => ln (sum (fun j => k i j / a i * exp (f j)) m)).
  assert (ZE : forall i, (i <= n)%nat -> z i = e i + h i).
  { intros r Hr. rewrite Z by assumption. pose proof (A r Hr). unfold h.
    replace (sum (fun j => k r j * exp (e r + f j)) m / a r) with (exp (e r) * sum (fun j => k r j / a r * exp (f j)) m).
    - rewrite ln_mult, ln_exp; [ring | apply exp_pos |].
      apply sum_pos; intros j J. apply Rmult_lt_0_compat; [apply Rdiv_lt_0_compat; auto | apply exp_pos].
    - unfold Rdiv. rewrite (Rmult_comm (sum _ _)), <- !sum_scale. apply sum_eq; intros. rewrite exp_plus. ring. }
  destruct (slope (z i / 2) (z l / 2) t (T i I) (T l L)) as [q [Q [Q0 S]]].
  exists (w * q), (h l - h i).
  split; [split; [apply Rmult_le_compat_l; lra | rewrite <- (Rmult_1_r w) at 2; apply Rmult_le_compat_l; lra]|].
  split; [now apply Rmult_le_pos|]. split; [exact (mean_close n m k a f phi Phi Pos Row Cross i l I L)|].
  split; [rewrite Ropp_minus_distr; exact (mean_close n m k a f phi Phi Pos Row Cross l i L I)|].
  replace (e i - 2 * w * tanh (z i / 2) - (e l - 2 * w * tanh (z l / 2)))
    with (e i - e l - 2 * w * (tanh (z i / 2) - tanh (z l / 2))) by ring.
  rewrite S, (ZE i I), (ZE l L). field.
Qed.

Lemma head_contracts n m (k : nat -> nat -> R) (a e f z : nat -> R) phi w t M : 0 <= phi ->
  (forall i j, (i <= n)%nat -> (j <= m)%nat -> 0 < k i j) ->
  (forall i, (i <= n)%nat -> sum (k i) m = a i) ->
  (forall i l j h, (i <= n)%nat -> (l <= n)%nat -> (j <= m)%nat -> (h <= m)%nat ->
     k i j * k l h <= exp phi * (k i h * k l j)) ->
  (forall i, (i <= n)%nat -> z i = ln (sum (fun j => k i j * exp (e i + f j)) m / a i)) ->
  0 <= w -> (forall i, (i <= n)%nat -> Rabs (tanh (z i / 2)) <= t) ->
  osc e n <= M -> osc f m <= M -> osc (fun i => e i - 2 * w * tanh (z i / 2)) n <= factor w t phi * M.
Proof.
  intros Phi Pos Row Cross Z W T E F. apply osc_below; intros i l I L.
  destruct (head_moves n m k a e f z phi w t Phi Pos Row Cross Z W T i l I L) as [q [d [Q [Q0 [D [D' ->]]]]]].
  pose proof (osc_pos f m) as F0. pose proof (eta_range phi Phi) as R.
  assert (eta phi * osc f m <= eta phi * M) by (apply Rmult_le_compat_l; lra).
  pose proof (osc_above e n i l I L). pose proof (osc_above e n l i L I). apply mixture; lra.
Qed.

(** *** The heads of the layer. *)
Section Rate.
Variables (n m : nat) (lambda phi : R) (C : nat -> nat -> R) (a b u v us vs : nat -> R).
Hypothesis Lambda : 0 < lambda.
Hypothesis Cross : cross_ratios n m lambda C phi.
Hypothesis Solution : solution n m lambda C a b us vs.
Let distance : R := hilbert n m lambda us vs u v.

Lemma half S c : 0 < S -> 0 < c -> (S - c) / (S + c) = tanh (ln (S / c) / 2).
Proof. intros HS Hc. rewrite tanh_identity by assumption. f_equal; field. Qed.

Lemma rows_contract w t : 0 <= w -> rows_within n m lambda C a u v t ->
  osc (fun i => (rows_head m lambda C a (2 * lambda * w) u v i - us i) / lambda) n <= factor w t phi * distance.
Proof.
  intros W T. destruct Cross as [Phi X], Solution as [Rows _].
  assert (Ap : forall i, (i <= n)%nat -> 0 < a i) by (intros i I; rewrite <- Rows by assumption; apply sum_pos; intros; apply exp_pos).
  assert (Sp : forall i, 0 < row m lambda C u v i) by (intros; apply sum_pos; intros; apply exp_pos).
  eapply Rle_trans;
    [apply (osc_ext _ (fun i => (u i - us i) / lambda - 2 * w * tanh (ln (row m lambda C u v i / a i) / 2)))|].
  { intros i I. unfold rows_head. rewrite half by auto. field. lra. }
  apply (head_contracts n m (plan lambda C us vs) a _ (fun j => (v j - vs j) / lambda)); auto.
  - intros; apply exp_pos.
  - intros i l j h I L J H. now apply (plan_cross n m lambda phi C us vs Lambda X).
  - intros i I. do 2 f_equal. apply sum_eq; intros. now apply (plan_moves lambda C u v us vs Lambda).
  - intros i I. rewrite <- half by auto. auto.
  - apply Rmax_l.
  - apply Rmax_r.
Qed.

Lemma cols_contract w t : 0 <= w -> cols_within n m lambda C b u v t ->
  osc (fun j => (cols_head n lambda C b (2 * lambda * w) u v j - vs j) / lambda) m <= factor w t phi * distance.
Proof.
  intros W T. destruct Cross as [Phi X], Solution as [_ Cols].
  assert (Bp : forall j, (j <= m)%nat -> 0 < b j) by (intros j J; rewrite <- Cols by assumption; apply sum_pos; intros; apply exp_pos).
  assert (Sp : forall j, 0 < col n lambda C u v j) by (intros; apply sum_pos; intros; apply exp_pos).
  eapply Rle_trans;
    [apply (osc_ext _ (fun j => (v j - vs j) / lambda - 2 * w * tanh (ln (col n lambda C u v j / b j) / 2)))|].
  { intros j J. unfold cols_head. rewrite half by auto. field. lra. }
  apply (head_contracts m n (fun j i => plan lambda C us vs i j) b _ (fun i => (u i - us i) / lambda)); auto.
  - intros; apply exp_pos.
  - intros j h i l J H I L. pose proof (plan_cross n m lambda phi C us vs Lambda X i l j h I L J H). lra.
  - intros j J. do 2 f_equal. apply sum_eq; intros i _. rewrite (plan_moves lambda C u v us vs Lambda). do 2 f_equal. ring.
  - intros j J. rewrite <- half by auto. auto.
  - apply Rmax_r.
  - apply Rmax_l.
Qed.

Lemma as_ratio g : g = 2 * lambda * (g / (2 * lambda)).
Proof. field. lra. Qed.

Lemma ratio_range g : 0 <= g <= 2 * lambda -> 0 <= g / (2 * lambda) <= 1.
Proof.
  intros G. split; apply Rmult_le_reg_r with (2 * lambda); try lra; unfold Rdiv; rewrite Rmult_assoc, Rinv_l; lra.
Qed.

(** L: both heads, each with its own step up to 2 lambda.  A head that does not act has the step 0. *)
Theorem hilbert_rate gr gc t : 0 <= gr <= 2 * lambda -> 0 <= gc <= 2 * lambda -> t <= 1 ->
  rows_within n m lambda C a u v t -> cols_within n m lambda C b u v t ->
  hilbert n m lambda us vs (rows_head m lambda C a gr u v) (cols_head n lambda C b gc u v)
  <= (1 - Rmin gr gc / (2 * lambda) * (1 - t * t) * (1 - eta phi)) * distance.
Proof.
  intros Gr Gc T1 Tr Tc. pose proof Cross as [Phi _]. pose proof (eta_range phi Phi) as R.
  pose proof (hilbert_pos n m lambda us vs u v : 0 <= distance) as D.
  assert (t0 : 0 <= t) by (eapply Rle_trans; [apply Rabs_pos | apply (Tr 0%nat); lia]).
  assert (P : 0 <= (1 - t * t) * (1 - eta phi)) by (apply Rmult_le_pos; [nra | lra]).
  set (q := Rmin gr gc / (2 * lambda)).
  assert (Q : 0 <= q * (1 - t * t) * eta phi).
  { apply Rmult_le_pos; [|lra]. apply Rmult_le_pos; [|nra]. apply Rmult_le_pos; [apply Rmin_glb; lra|].
    left; apply Rinv_0_lt_compat; lra. }
  assert (Weak : forall g, 0 <= g <= 2 * lambda -> Rmin gr gc <= g ->
    factor (g / (2 * lambda)) t phi <= 1 - q * (1 - t * t) * (1 - eta phi)).
  { intros g G Mn. rewrite factor_short by (try assumption; now apply ratio_range).
    assert (q <= g / (2 * lambda)) by (apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; lra | assumption]).
    rewrite !Rmult_assoc. apply Rplus_le_compat_l, Ropp_le_contravar, Rmult_le_compat_r; assumption. }
  apply Rmax_lub; (eapply Rle_trans; [|apply Rmult_le_compat_r; [exact D|]]).
  - pose proof (rows_contract (gr / (2 * lambda)) t ltac:(apply ratio_range; lra) Tr) as H. rewrite <- as_ratio in H. exact H.
  - pose proof (Weak gr ltac:(lra) ltac:(apply Rmin_l)). lra.
  - pose proof (cols_contract (gc / (2 * lambda)) t ltac:(apply ratio_range; lra) Tc) as H. rewrite <- as_ratio in H. exact H.
  - pose proof (Weak gc ltac:(lra) ltac:(apply Rmin_r)). lra.
Qed.

Lemma within_one S c : 0 < S -> 0 < c -> Rabs ((S - c) / (S + c)) <= 1.
Proof. intros HS Hc. rewrite half by assumption. pose proof (tanh_bounds (ln (S / c) / 2)). apply Rabs_le. lra. Qed.

Lemma all_within_one : rows_within n m lambda C a u v 1 /\ cols_within n m lambda C b u v 1.
Proof.
  destruct Solution as [Rows Cols].
  split; intros i I; apply within_one; try (apply sum_pos; intros; apply exp_pos);
    [rewrite <- Rows by assumption | rewrite <- Cols by assumption]; apply sum_pos; intros; apply exp_pos.
Qed.

(** Erratum 26: no layer with steps up to 2 lambda increases it, wherever the layer starts. *)
Corollary hilbert_never_grows gr gc : 0 <= gr <= 2 * lambda -> 0 <= gc <= 2 * lambda ->
  hilbert n m lambda us vs (rows_head m lambda C a gr u v) (cols_head n lambda C b gc u v) <= distance.
Proof.
  intros Gr Gc. destruct all_within_one as [Tr Tc].
  pose proof (hilbert_rate gr gc 1 ltac:(lra) ltac:(lra) ltac:(lra) Tr Tc) as H. lra.
Qed.
End Rate.
