(** Section 0 of docs/theory.md: a layer as a map of potentials.
    Rows are numbered 0 .. n and columns 0 .. m, so the problem has n + 1 rows and m + 1 columns, any numbers from 1 up. *)
From Coq Require Import Reals Lra Lia.
Open Scope R_scope.

Section Layer.
Variables (n m : nat) (lambda : R) (C : nat -> nat -> R) (a b : nat -> R).

(** M_ij = exp((u_i + v_j - C_ij)/lambda - 1), its row sums S_i and its column sums S'_j. *)
Definition plan (u v : nat -> R) (i j : nat) : R := exp ((u i + v j - C i j) / lambda - 1).
Definition row (u v : nat -> R) (i : nat) : R := sum_f_R0 (fun j => plan u v i j) m.
Definition col (u v : nat -> R) (j : nat) : R := sum_f_R0 (fun i => plan u v i j) n.

(** A head attends to the points (weight S) and to the sink (weight a), with values 1 and -1. *)
Definition rows_head (g : R) (u v : nat -> R) (i : nat) : R := u i - g * ((row u v i - a i) / (row u v i + a i)).
Definition cols_head (g : R) (u v : nat -> R) (j : nat) : R := v j - g * ((col u v j - b j) / (col u v j + b j)).
End Layer.

(** Row sums and column sums are one function of a potential x, the other side's potentials v and a line c of costs. *)
Definition mass (lambda : R) (m : nat) (c : nat -> R) (x : R) (v : nat -> R) : R :=
  sum_f_R0 (fun j => exp ((x + v j - c j) / lambda - 1)) m.

Lemma row_mass m lambda C u v i : row m lambda C u v i = mass lambda m (C i) (u i) v.
Proof. reflexivity. Qed.

Lemma col_mass n lambda C u v j : col n lambda C u v j = mass lambda n (fun i => C i j) (v j) u.
Proof. apply sum_eq; intros i _. unfold plan. now rewrite (Rplus_comm (u i)). Qed.

Lemma sum_pos (f : nat -> R) (n : nat) : (forall k, (k <= n)%nat -> 0 < f k) -> 0 < sum_f_R0 f n.
Proof.
  induction n as [|n IH]; intros H; simpl; [apply H; lia|].
  apply Rplus_lt_0_compat; [apply IH; intros; apply H; lia | apply H; lia].
Qed.

Lemma mass_pos lambda m c x v : 0 < mass lambda m c x v.
Proof. apply sum_pos; intros; apply exp_pos. Qed.
