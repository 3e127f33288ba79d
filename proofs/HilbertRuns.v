(** Theorem L over many layers, with rounding (theorem P), and for heads in turn.  One layer is in HilbertRate.v.

    A run is layers one after the other, layer k with its own steps gr k and gc k; a coordinate of its result may be wrong by e.
    eta < 1 belongs to the costs; t bounds |tanh(z/2)|, |tanh(z'/2)| in the layers spoken of. *)
From Coq Require Import Reals Lra Lia.
From OTformer Require Import Tanh Layer Birkhoff TheoremA HilbertRate.
Open Scope R_scope.

Definition run n m lambda C a b (gr gc : nat -> R) e (u v : nat -> nat -> R) : Prop := forall k,
  (forall i, (i <= n)%nat -> Rabs (u (S k) i - rows_head m lambda C a (gr k) (u k) (v k) i) <= e) /\
  (forall j, (j <= m)%nat -> Rabs (v (S k) j - cols_head n lambda C b (gc k) (u k) (v k) j) <= e).

(** An error e in every coordinate is one of 2 e/lambda in the oscillation. *)
Lemma osc_near n lambda e (x y s : nat -> R) : 0 < lambda -> (forall i, (i <= n)%nat -> Rabs (x i - y i) <= e) ->
  osc (fun i => (x i - s i) / lambda) n <= osc (fun i => (y i - s i) / lambda) n + 2 * e / lambda.
Proof.
  intros L H. apply osc_below; intros i k I K.
  pose proof (osc_above (fun i => (y i - s i) / lambda) n i k I K) as O. cbv beta in O.
  assert (D : forall r, (r <= n)%nat -> - e <= x r - y r <= e)
    by (intros r Hr; specialize (H r Hr); revert H; unfold Rabs; destruct Rcase_abs; lra).
  pose proof (D i I). pose proof (D k K). assert (0 < / lambda) by now apply Rinv_0_lt_compat.
  replace ((x i - s i) / lambda - (x k - s k) / lambda)
    with ((y i - s i) / lambda - (y k - s k) / lambda + (x i - y i - (x k - y k)) * / lambda) by (field; lra).
  assert ((x i - y i - (x k - y k)) * / lambda <= 2 * e / lambda) by (apply Rmult_le_compat_r; lra). lra.
Qed.

(** x_{k+1} <= (1 - c) x_k + d gives x_k <= (1 - c)^k x_0 + d/c. *)
Lemma geometric (x : nat -> R) c d : 0 < c <= 1 -> 0 <= d -> (forall k, x (S k) <= (1 - c) * x k + d) ->
  forall k, x k <= (1 - c) ^ k * x 0%nat + d / c.
Proof.
  intros Cr D H k. assert (0 <= d / c) by (apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra]).
  induction k as [|k IH]; [simpl; lra|]. eapply Rle_trans; [apply H|].
  apply Rle_trans with ((1 - c) * ((1 - c) ^ k * x 0%nat + d / c) + d); [apply Rplus_le_compat_r, Rmult_le_compat_l; lra|].
  right. simpl. field. lra.
Qed.

Section Runs.
Variables (n m : nat) (lambda phi : R) (C : nat -> nat -> R) (a b us vs : nat -> R).
Hypothesis Lambda : 0 < lambda.
Hypothesis Cross : cross_ratios n m lambda C phi.
Hypothesis Solution : solution n m lambda C a b us vs.
Let distance (u v : nat -> R) : R := hilbert n m lambda us vs u v.

(** What a layer takes away at least: gamma is below all steps. *)
Definition share gamma t : R := gamma / (2 * lambda) * (1 - t * t) * (1 - eta phi).

Section Layers.
Variables (gr gc : nat -> R) (gamma e t : R) (u v : nat -> nat -> R).
Hypothesis Steps : forall k, gamma <= gr k <= 2 * lambda /\ gamma <= gc k <= 2 * lambda.
Hypothesis Gamma : 0 < gamma.
Hypothesis Less : 0 <= t < 1.
Hypothesis Within : forall k, rows_within n m lambda C a (u k) (v k) t /\ cols_within n m lambda C b (u k) (v k) t.
Hypothesis Run : run n m lambda C a b gr gc e u v.

Lemma share_range : 0 < share gamma t <= 1.
Proof.
  destruct Cross as [Phi _]. pose proof (eta_range phi Phi) as R. pose proof (Steps 0%nat) as [[G0 G1] _].
  pose proof (ratio_range lambda Lambda gamma ltac:(lra)) as G.
  assert (0 < gamma / (2 * lambda)) by (apply Rdiv_lt_0_compat; lra).
  assert (0 < 1 - t * t <= 1) by (split; nra). assert (0 < 1 - eta phi <= 1) by lra.
  assert (0 < gamma / (2 * lambda) * (1 - t * t) <= 1) by (split; [apply Rmult_lt_0_compat; lra | nra]).
  unfold share. split; [apply Rmult_lt_0_compat; lra | nra].
Qed.

Lemma e_pos : 0 <= e.
Proof. destruct (Run 0%nat) as [H _]. eapply Rle_trans; [apply Rabs_pos | apply (H 0%nat); lia]. Qed.

Lemma rounded_layer k :
  distance (u (S k)) (v (S k)) <= (1 - share gamma t) * distance (u k) (v k) + 2 * e / lambda.
Proof.
  destruct (Run k) as [U V], (Steps k) as [[G0 G1] [G2 G3]], (Within k) as [Tr Tc]. destruct Cross as [Phi _].
  pose proof (eta_range phi Phi) as R. pose proof (hilbert_pos n m lambda us vs (u k) (v k)) as D.
  eapply Rle_trans.
  - apply Rmax_lub; (eapply Rle_trans; [apply osc_near with (1 := Lambda); eassumption|]);
      apply Rplus_le_compat_r; [apply Rmax_l | apply Rmax_r].
  - apply Rplus_le_compat_r. eapply Rle_trans;
      [apply (hilbert_rate n m lambda phi C a b (u k) (v k) us vs Lambda Cross Solution (gr k) (gc k) t); lra || assumption|].
    unfold distance, share. apply Rmult_le_compat_r; [exact D|].
    assert (gamma / (2 * lambda) <= Rmin (gr k) (gc k) / (2 * lambda))
      by (apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; lra | apply Rmin_glb; lra]).
    rewrite !Rmult_assoc. apply Rplus_le_compat_l, Ropp_le_contravar, Rmult_le_compat_r; [|assumption].
    apply Rmult_le_pos; [nra | lra].
Qed.

(** P: the error that stays is 2 e/(lambda c), whatever the depth. *)
Theorem rounding_floor k : distance (u k) (v k)
  <= (1 - share gamma t) ^ k * distance (u 0%nat) (v 0%nat) + 2 * e / (lambda * share gamma t).
Proof.
  pose proof share_range as S. pose proof e_pos as E.
  assert (E0 : 0 <= 2 * e / lambda) by (apply Rmult_le_pos; [lra | left; now apply Rinv_0_lt_compat]).
  assert (F0 : 0 <= e / (lambda * share gamma t)) by (apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; nra]).
  assert (F : 2 * e / lambda / share gamma t = 2 * (e / (lambda * share gamma t))) by (field; lra).
  pose proof (geometric (fun k => distance (u k) (v k)) _ _ S E0 rounded_layer k) as G. cbv beta in G. lra.
Qed.
End Layers.

(** L over k exact layers; t bounds the residuals of all of them. *)
Theorem rate_over_layers gr gc gamma t u v : 0 < gamma -> 0 <= t < 1 ->
  (forall k, gamma <= gr k <= 2 * lambda /\ gamma <= gc k <= 2 * lambda) ->
  (forall k, rows_within n m lambda C a (u k) (v k) t /\ cols_within n m lambda C b (u k) (v k) t) ->
  run n m lambda C a b gr gc 0 u v ->
  forall k, distance (u k) (v k) <= (1 - share gamma t) ^ k * distance (u 0%nat) (v 0%nat).
Proof.
  intros G T Steps W Run k.
  pose proof (rounding_floor gr gc gamma 0 t u v Steps G T W Run k) as H.
  unfold Rdiv in H. lra.
Qed.

(** Erratum 26 over k layers: exact layers never increase the distance, so it is at most that of the start. *)
Theorem never_above_the_start gr gc u v : (forall k, 0 <= gr k <= 2 * lambda /\ 0 <= gc k <= 2 * lambda) ->
  run n m lambda C a b gr gc 0 u v -> forall k, distance (u k) (v k) <= distance (u 0%nat) (v 0%nat).
Proof.
  intros Steps Run k. induction k as [|k IH]; [apply Rle_refl|]. eapply Rle_trans; [|exact IH].
  destruct (Run k) as [U V], (Steps k) as [Gr Gc].
  eapply Rle_trans; [|apply (hilbert_never_grows n m lambda phi C a b (u k) (v k) us vs Lambda Cross Solution (gr k) (gc k)); lra].
  apply Rmax_lub; (eapply Rle_trans; [apply osc_near with (1 := Lambda); eassumption|]);
    unfold Rdiv at 2; rewrite Rmult_0_r, Rmult_0_l, Rplus_0_r; [apply Rmax_l | apply Rmax_r].
Qed.

(** The start: a point within R of the solution in every coordinate has Hilbert's distance 2 R/lambda at most. *)
Lemma distance_of_the_start r u v : (forall i, (i <= n)%nat -> Rabs (u i - us i) <= r) ->
  (forall j, (j <= m)%nat -> Rabs (v j - vs j) <= r) -> distance u v <= 2 * r / lambda.
Proof.
  intros U V. assert (Z : forall (s : nat -> R) k, osc (fun i => (s i - s i) / lambda) k <= 0)
    by (intros; apply osc_below; intros; right; field; lra).
  apply Rmax_lub; (eapply Rle_trans; [apply osc_near with (1 := Lambda); eassumption|]);
    [pose proof (Z us n) | pose proof (Z vs m)]; lra.
Qed.

Lemma power_below c k : 0 <= c <= 1 -> (1 - c) ^ k <= exp (- (c * INR k)).
Proof.
  intros Cr. induction k as [|k IH]; [simpl; rewrite Rmult_0_r, Ropp_0, exp_0; lra|].
  rewrite S_INR. replace (- (c * (INR k + 1))) with (- c + - (c * INR k)) by ring. rewrite exp_plus. simpl.
  pose proof (exp_ineq1_le (- c)). apply Rmult_le_compat; try lra. apply pow_le; lra.
Qed.

(** The depth: both heads with the step gamma, |tanh| <= 1/2 from layer k1 on (by the bound on the residual, which is cited).
    1/(1 - eta) = (1 + e^{phi/2})/2. *)
Theorem depth_logarithmic gamma r eps k1 u v : 0 < gamma <= 2 * lambda -> 0 < r -> 0 < eps ->
  run n m lambda C a b (fun _ => gamma) (fun _ => gamma) 0 u v ->
  (forall i, (i <= n)%nat -> Rabs (u 0%nat i - us i) <= r) -> (forall j, (j <= m)%nat -> Rabs (v 0%nat j - vs j) <= r) ->
  (forall k, (k1 <= k)%nat -> rows_within n m lambda C a (u k) (v k) (1 / 2) /\ cols_within n m lambda C b (u k) (v k) (1 / 2)) ->
  (forall k, distance (u (k1 + k)%nat) (v (k1 + k)%nat)
             <= (1 - 3 / 4 * (gamma / (2 * lambda)) * (1 - eta phi)) ^ k * (2 * r / lambda)) /\
  (forall k, 4 / 3 * (2 * lambda / gamma) * ((1 + exp (phi / 2)) / 2) * ln (2 * r / (lambda * eps)) <= INR k ->
             distance (u (k1 + k)%nat) (v (k1 + k)%nat) <= eps).
Proof.
  intros G R0 E Run U V W.
  assert (Start : distance (u k1) (v k1) <= 2 * r / lambda).
  { eapply Rle_trans; [apply (never_above_the_start (fun _ => gamma) (fun _ => gamma)); [intros; lra | exact Run]|].
    now apply distance_of_the_start. }
  assert (Run' : run n m lambda C a b (fun _ => gamma) (fun _ => gamma) 0 (fun k => u (k1 + k)%nat) (fun k => v (k1 + k)%nat)).
  { intros k. rewrite <- plus_n_Sm. exact (Run (k1 + k)%nat). }
  set (c := 3 / 4 * (gamma / (2 * lambda)) * (1 - eta phi)).
  assert (Sh : share gamma (1 / 2) = c) by (unfold share, c; field; lra).
  pose proof (share_range (fun _ => gamma) (fun _ => gamma) gamma (1 / 2) ltac:(intros; lra) ltac:(lra) ltac:(lra)) as Cr.
  rewrite Sh in Cr.
  assert (Rate : forall k, distance (u (k1 + k)%nat) (v (k1 + k)%nat) <= (1 - c) ^ k * (2 * r / lambda)).
  { intros k. eapply Rle_trans.
    - apply (rate_over_layers (fun _ => gamma) (fun _ => gamma) gamma (1 / 2) (fun k => u (k1 + k)%nat)
        (fun k => v (k1 + k)%nat)); [lra | lra | intros; lra | intros q; apply W; lia | exact Run'].
    - rewrite Sh, Nat.add_0_r. apply Rmult_le_compat_l; [apply pow_le; lra | exact Start]. }
  split; intros k; [|intros K].
  { eapply Rle_trans; [apply Rate|]. assert (0 < 2 * r / lambda) by (apply Rdiv_lt_0_compat; lra).
    apply Rmult_le_compat_r; [lra|]. apply pow_incr. unfold c in *. lra. }
  eapply Rle_trans; [apply Rate|].
  assert (Inv : c * (4 / 3 * (2 * lambda / gamma) * ((1 + exp (phi / 2)) / 2)) = 1)
    by (unfold c; rewrite eta_root; field; pose proof (exp_pos (phi / 2)); repeat split; lra).
  assert (P : 0 < 2 * r / (lambda * eps)) by (apply Rdiv_lt_0_compat; [lra | now apply Rmult_lt_0_compat]).
  assert (L : ln (2 * r / (lambda * eps)) <= c * INR k).
  { rewrite <- (Rmult_1_l (ln _)), <- Inv, Rmult_assoc. apply Rmult_le_compat_l; lra. }
  assert (X : exp (- (c * INR k)) <= lambda * eps / (2 * r)).
  { replace (lambda * eps / (2 * r)) with (exp (- ln (2 * r / (lambda * eps)))).
    - destruct L as [L|L]; [left; apply exp_increasing; lra | right; f_equal; lra].
    - rewrite exp_Ropp, exp_ln by assumption. field. repeat split; lra. }
  replace eps with (lambda * eps / (2 * r) * (2 * r / lambda)) by (field; lra).
  apply Rmult_le_compat_r; [left; apply Rdiv_lt_0_compat; lra|].
  eapply Rle_trans; [apply power_below; lra | exact X].
Qed.

(** *** Heads in turn, gamma = 2 lambda w: a pair of layers, rows first.  t bounds the residuals of the rows before the first
    and of the columns before the second. *)
Lemma factor_range w t : 0 <= w -> w * (1 + eta phi) <= 2 -> t <= 1 -> 0 <= t -> 0 <= factor w t phi <= 1.
Proof.
  intros W Long T t0. destruct Cross as [Phi _]. pose proof (eta_range phi Phi) as R. split; [|apply Rmax_lub; [|lra]].
  - destruct (Rle_dec w 1) as [S|S]; [rewrite factor_short by lra | eapply Rle_trans; [|apply Rmax_r]; nra].
    assert (0 <= 1 - t * t <= 1) by nra. assert (0 <= w * (1 - t * t) <= 1) by (split; nra). nra.
  - assert (0 <= w * (1 - t * t) * (1 - eta phi)) by (repeat apply Rmult_le_pos; nra). lra.
Qed.

Theorem pair_of_heads w t u v : 0 <= w -> w * (1 + eta phi) <= 2 -> t <= 1 ->
  rows_within n m lambda C a u v t -> cols_within n m lambda C b (rows_head m lambda C a (2 * lambda * w) u v) v t ->
  let u' := rows_head m lambda C a (2 * lambda * w) u v in
  distance u' (cols_head n lambda C b (2 * lambda * w) u' v) <= factor w t phi * distance u v.
Proof.
  intros W Long T Tr Tc u'. pose proof (hilbert_pos n m lambda us vs u v : 0 <= distance u v) as D.
  pose proof (factor_range w t W Long T (Rle_trans _ _ _ (Rabs_pos _) (Tr 0%nat ltac:(lia)))) as F.
  pose proof (rows_contract n m lambda phi C a b u v us vs Lambda Cross Solution w t W Tr) as E.
  pose proof (cols_contract n m lambda phi C a b u' v us vs Lambda Cross Solution w t W Tc) as K.
  enough (distance u' (cols_head n lambda C b (2 * lambda * w) u' v) <= factor w t phi * distance u v)
    by (pose proof (Rmult_le_pos _ _ (proj1 F) D); lra).
  apply Rmax_lub; [exact E|]. eapply Rle_trans; [exact K|]. apply Rmult_le_compat_l; [lra|].
  apply Rmax_lub; [|apply Rmax_r]. eapply Rle_trans; [exact E|].
  apply Rle_trans with (1 * distance u v); [apply Rmult_le_compat_r; [exact D | lra] | lra].
Qed.

(** omega <= 1: the factor of both heads with the step 2 lambda omega. *)
Corollary pair_contracts_short w t u v : 0 <= w <= 1 -> t <= 1 ->
  rows_within n m lambda C a u v t -> cols_within n m lambda C b (rows_head m lambda C a (2 * lambda * w) u v) v t ->
  let u' := rows_head m lambda C a (2 * lambda * w) u v in
  distance u' (cols_head n lambda C b (2 * lambda * w) u' v) <= (1 - w * (1 - t * t) * (1 - eta phi)) * distance u v.
Proof.
  intros W T Tr Tc u'. destruct Cross as [Phi _]. pose proof (eta_range phi Phi) as R.
  assert (t0 : 0 <= t) by (eapply Rle_trans; [apply Rabs_pos | apply (Tr 0%nat); lia]).
  assert (Q : 0 <= w * (1 - t * t) * eta phi) by (apply Rmult_le_pos; [apply Rmult_le_pos; nra | lra]).
  eapply Rle_trans; [apply (pair_of_heads w t); try assumption; [lra | nra]|].
  rewrite factor_short by assumption. apply Rmult_le_compat_r; [apply hilbert_pos | lra].
Qed.

(** The same over k pairs. *)
Theorem rate_over_pairs w t u v : 0 <= w -> w * (1 + eta phi) <= 2 -> t <= 1 ->
  (forall k, u (S k) = rows_head m lambda C a (2 * lambda * w) (u k) (v k)) ->
  (forall k, v (S k) = cols_head n lambda C b (2 * lambda * w) (u (S k)) (v k)) ->
  (forall k, rows_within n m lambda C a (u k) (v k) t /\ cols_within n m lambda C b (u (S k)) (v k) t) ->
  forall k, distance (u k) (v k) <= factor w t phi ^ k * distance (u 0%nat) (v 0%nat).
Proof.
  intros W Long T U V Within k. induction k as [|k IH]; [simpl; lra|]. destruct (Within k) as [Tr Tc]. rewrite U in Tc.
  pose proof (factor_range w t W Long T (Rle_trans _ _ _ (Rabs_pos _) (Tr 0%nat ltac:(lia)))) as F.
  rewrite V, U. eapply Rle_trans; [now apply (pair_of_heads w t)|].
  simpl. rewrite Rmult_assoc. now apply Rmult_le_compat_l.
Qed.

(** 1 < omega < 2/(1 + eta): the factor is below 1. *)
Theorem factor_below_one w t : 0 < w -> w * (1 + eta phi) < 2 -> 0 <= t < 1 -> factor w t phi < 1.
Proof.
  intros W Long T. destruct Cross as [Phi _]. pose proof (eta_range phi Phi) as R. apply Rmax_lub_lt; [|lra].
  assert (0 < 1 - t * t) by nra.
  assert (0 < w * (1 - t * t) * (1 - eta phi)) by (repeat apply Rmult_lt_0_compat; lra). lra.
Qed.

(** A layer of both heads, or of one: steps up to 4 lambda/(1 + eta), more than the 2 lambda of erratum 26, increase nothing. *)
Theorem longer_steps_never_grow wr wc u v : 0 <= wr -> 0 <= wc -> wr * (1 + eta phi) <= 2 -> wc * (1 + eta phi) <= 2 ->
  distance (rows_head m lambda C a (2 * lambda * wr) u v) (cols_head n lambda C b (2 * lambda * wc) u v) <= distance u v.
Proof.
  intros Wr Wc Lr Lc. destruct (all_within_one n m lambda C a b u v us vs Solution) as [Tr Tc].
  assert (F : forall w, w * (1 + eta phi) <= 2 -> factor w 1 phi <= 1) by (intros w Hw; apply Rmax_lub; lra).
  pose proof (hilbert_pos n m lambda us vs u v : 0 <= distance u v) as D.
  assert (Q : forall w, w * (1 + eta phi) <= 2 -> factor w 1 phi * distance u v <= distance u v)
    by (intros w Hw; apply Rle_trans with (1 * distance u v); [apply Rmult_le_compat_r; [exact D | now apply F] | lra]).
  apply Rmax_lub; [eapply Rle_trans; [|apply (Q wr); lra] | eapply Rle_trans; [|apply (Q wc); lra]].
  - now apply (rows_contract n m lambda phi C a b u v us vs Lambda Cross Solution).
  - now apply (cols_contract n m lambda phi C a b u v us vs Lambda Cross Solution).
Qed.
End Runs.
