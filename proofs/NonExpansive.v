(** Section 3 of docs/theory.md: a layer with steps up to 2 lambda is non-expansive in the sup norm, for every n and m.

    The proof is not the one by Jacobians: in the coordinates (u, -v) a layer is monotone and commutes with the addition of
    a constant, and such a map is non-expansive.  It needs no derivative but that of tanh. *)
From Coq Require Import Reals Lra Lia.
From OTformer Require Import Tanh Layer.
Open Scope R_scope.

Lemma exp_le (x y : R) : x <= y -> exp x <= exp y.
Proof. intros [H| ->]; [left; now apply exp_increasing | right; reflexivity]. Qed.

Lemma ln_le (x y : R) : 0 < x -> x <= y -> ln x <= ln y.
Proof. intros P [H| ->]; [left; now apply ln_increasing | right; reflexivity]. Qed.

(** One coordinate of one head.  x <= x' + d and v' <= v + d leave a slack delta = x' + d - x >= 0, and
    S >= e^{-delta/lambda} S'. *)
Lemma mass_monotone lambda m c x x' v v' d :
  0 < lambda -> (forall j, (j <= m)%nat -> v' j <= v j + d) ->
  exp (- ((x' + d - x) / lambda)) * mass lambda m c x' v' <= mass lambda m c x v.
Proof.
  intros L V. unfold mass. rewrite scal_sum. apply sum_Rle; intros j J.
  rewrite <- exp_plus. apply exp_le.
  apply Rmult_le_reg_r with lambda; [assumption|]. specialize (V j J).
  field_simplify; [lra | lra | lra].
Qed.

Definition head (g S a x : R) : R := x - g * ((S - a) / (S + a)).

Lemma head_monotone lambda g m c a x x' v v' d :
  0 < lambda -> 0 < a -> 0 <= g <= 2 * lambda ->
  x <= x' + d -> (forall j, (j <= m)%nat -> v' j <= v j + d) ->
  head g (mass lambda m c x v) a x <= head g (mass lambda m c x' v') a x' + d.
Proof.
  intros L A G X V. unfold head.
  pose proof (mass_pos lambda m c x v) as P. pose proof (mass_pos lambda m c x' v') as P'.
  pose proof (mass_monotone lambda m c x x' v v' d L V) as M.
  set (S := mass lambda m c x v) in *. set (S' := mass lambda m c x' v') in *.
  rewrite !tanh_identity by assumption.
  set (q := (x' + d - x) / lambda) in *.
  assert (Q : x' + d - x = q * lambda) by (unfold q; field; lra).
  assert (Q0 : 0 <= q) by (apply Rmult_le_reg_r with lambda; lra).
  assert (Z : / 2 * ln (S' / a) - q / 2 <= / 2 * ln (S / a)).
  { assert (ln (S' / a) - q <= ln (S / a)); [|lra].
    assert (R : 0 < S' / a) by (now apply Rdiv_lt_0_compat).
    replace (ln (S' / a) - q) with (ln (exp (- q)) + ln (S' / a)) by (rewrite ln_exp; ring).
    rewrite <- ln_mult by (try apply exp_pos; assumption).
    apply ln_le; [apply Rmult_lt_0_compat; [apply exp_pos | assumption]|].
    unfold Rdiv. rewrite <- Rmult_assoc. apply Rmult_le_compat_r; [left; now apply Rinv_0_lt_compat | exact M]. }
  pose proof (tanh_increasing _ _ Z) as T.
  pose proof (tanh_lipschitz (/ 2 * ln (S' / a) - q / 2) (/ 2 * ln (S' / a)) ltac:(lra)) as T'.
  nra.
Qed.

Lemma near (x y d : R) : Rabs (x - y) <= d -> x <= y + d /\ y <= x + d.
Proof. unfold Rabs; destruct Rcase_abs; lra. Qed.

(** The statement: d bounds the distance of (u, v) and (u', v') in the sup norm; then it bounds that of their images. *)
Theorem layer_non_expansive n m lambda C a b gr gc u v u' v' d :
  0 < lambda -> (forall i, (i <= n)%nat -> 0 < a i) -> (forall j, (j <= m)%nat -> 0 < b j) ->
  0 <= gr <= 2 * lambda -> 0 <= gc <= 2 * lambda ->
  (forall i, (i <= n)%nat -> Rabs (u i - u' i) <= d) -> (forall j, (j <= m)%nat -> Rabs (v j - v' j) <= d) ->
  (forall i, (i <= n)%nat -> Rabs (rows_head m lambda C a gr u v i - rows_head m lambda C a gr u' v' i) <= d) /\
  (forall j, (j <= m)%nat -> Rabs (cols_head n lambda C b gc u v j - cols_head n lambda C b gc u' v' j) <= d).
Proof.
  intros L A B Gr Gc U V.
  assert (U1 : forall i, (i <= n)%nat -> u i <= u' i + d) by (intros i I; apply (near _ _ _ (U i I))).
  assert (U2 : forall i, (i <= n)%nat -> u' i <= u i + d) by (intros i I; apply (near _ _ _ (U i I))).
  assert (V1 : forall j, (j <= m)%nat -> v j <= v' j + d) by (intros j J; apply (near _ _ _ (V j J))).
  assert (V2 : forall j, (j <= m)%nat -> v' j <= v j + d) by (intros j J; apply (near _ _ _ (V j J))).
  split; [intros i I; unfold rows_head; rewrite !row_mass | intros j J; unfold cols_head; rewrite !col_mass];
    apply Rabs_le; split.
  - pose proof (head_monotone lambda gr m (C i) (a i) _ _ v' v d L (A i I) ltac:(lra) (U2 i I) V1); unfold head in *; lra.
  - pose proof (head_monotone lambda gr m (C i) (a i) _ _ v v' d L (A i I) ltac:(lra) (U1 i I) V2); unfold head in *; lra.
  - pose proof (head_monotone lambda gc n (fun i => C i j) (b j) _ _ u' u d L (B j J) ltac:(lra) (V2 j J) U1); unfold head in *; lra.
  - pose proof (head_monotone lambda gc n (fun i => C i j) (b j) _ _ u u' d L (B j J) ltac:(lra) (V1 j J) U2); unfold head in *; lra.
Qed.

(** Theorem G, errors add: a network whose layer k is wrong by at most err k in every coordinate (rounding, pruning, noise)
    ends within the sum of its errors of the exact one.  Layer k has its own lambda k (annealing); a head that does not act in
    a layer has the step 0 there. *)
Fixpoint total (d : R) (err : nat -> R) (k : nat) : R := match k with O => d | S l => total d err l + err l end.

Theorem errors_add n m C a b (lambda gr gc err : nat -> R) (u v u' v' : nat -> nat -> R) d :
  (forall k, 0 < lambda k) -> (forall i, (i <= n)%nat -> 0 < a i) -> (forall j, (j <= m)%nat -> 0 < b j) ->
  (forall k, 0 <= gr k <= 2 * lambda k /\ 0 <= gc k <= 2 * lambda k) ->
  (forall k i, (i <= n)%nat -> u (S k) i = rows_head m (lambda k) C a (gr k) (u k) (v k) i) ->
  (forall k j, (j <= m)%nat -> v (S k) j = cols_head n (lambda k) C b (gc k) (u k) (v k) j) ->
  (forall k i, (i <= n)%nat -> Rabs (u' (S k) i - rows_head m (lambda k) C a (gr k) (u' k) (v' k) i) <= err k) ->
  (forall k j, (j <= m)%nat -> Rabs (v' (S k) j - cols_head n (lambda k) C b (gc k) (u' k) (v' k) j) <= err k) ->
  (forall i, (i <= n)%nat -> Rabs (u' O i - u O i) <= d) -> (forall j, (j <= m)%nat -> Rabs (v' O j - v O j) <= d) ->
  forall k, (forall i, (i <= n)%nat -> Rabs (u' k i - u k i) <= total d err k) /\
            (forall j, (j <= m)%nat -> Rabs (v' k j - v k j) <= total d err k).
Proof.
  intros L A B G U V U' V' U0 V0 k. induction k as [|k [IU IV]]; [now split|]. destruct (G k) as [Gr Gc].
  destruct (layer_non_expansive n m (lambda k) C a b (gr k) (gc k) (u' k) (v' k) (u k) (v k) _ (L k) A B Gr Gc IU IV) as [NU NV].
  assert (T : forall x y z, Rabs (x - y) <= err k -> Rabs (y - z) <= total d err k -> Rabs (x - z) <= total d err (S k))
    by (simpl; intros x y z; unfold Rabs; repeat destruct Rcase_abs; lra).
  split; [intros i I; rewrite U by assumption; eapply T; [now apply U' | now apply NU]
         | intros j J; rewrite V by assumption; eapply T; [now apply V' | now apply NV]].
Qed.

(** 2 lambda cannot be raised: for every longer step some 1 x 1 problem has two points that a head moves apart. *)
Theorem longer_step_expands lambda g : 0 < lambda -> 2 * lambda < g ->
  exists C a u v u' v' d, 0 < a 0%nat /\ 0 < d /\ Rabs (u 0%nat - u' 0%nat) <= d /\ Rabs (v 0%nat - v' 0%nat) <= d /\
  d < Rabs (rows_head 0 lambda C a g u v 0 - rows_head 0 lambda C a g u' v' 0).
Proof.
  intros L G. set (x := (g / (2 * lambda) - 1) / 2).
  assert (E : g = 2 * lambda * (1 + 2 * x)) by (unfold x; field; lra).
  assert (X : 0 < x) by (apply Rmult_lt_reg_r with (4 * lambda); lra || (unfold x; field_simplify; lra)).
  exists (fun _ _ => - lambda), (fun _ => 1), (fun _ => lambda * x), (fun _ => lambda * x), (fun _ => 0), (fun _ => 0).
  exists (lambda * x).
  rewrite Rminus_0_r, (Rabs_right (lambda * x)) by nra.
  repeat split; try lra; try nra.
  unfold rows_head, row, plan; simpl.
  replace ((0 + 0 - - lambda) / lambda - 1) with 0 by (field; lra). rewrite exp_0.
  replace ((lambda * x + lambda * x - - lambda) / lambda - 1) with (2 * x) by (field; lra).
  replace ((exp (2 * x) - 1) / (exp (2 * x) + 1)) with (tanh x).
  2: { rewrite tanh_exp; field. pose proof (exp_pos (2 * x)); lra. }
  pose proof (tanh_lower x ltac:(lra)) as T.
  assert (x < (1 + 2 * x) * tanh x).
  { apply Rlt_le_trans with ((1 + 2 * x) * (x / (1 + x))); [|nra].
    apply Rmult_lt_reg_r with (1 + x); [lra|]. field_simplify; nra. }
  rewrite Rabs_left; nra.
Qed.
