"""Beam search whose translations contain required terms: vectorised dynamic beam allocation.

    constraints = LexicalConstraints([[[17, 4]], []])   # the first translation must contain the tokens 17 4
    model.generate(**batch, custom_generate=beam_search.search, num_beams=8, selection=constraints)

A translation ends only when it contains all its terms. The beam is divided evenly between banks: bank n holds
hypotheses with n tokens of the terms. Candidates are the most probable continuations, the best one of each hypothesis,
and the next token of each term. So some hypotheses always advance in their terms, while others wait for a better
place. (Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation"; Hu et al. 2019,
"Improved Lexically Constrained Decoding for Translation and Monolingual Rewriting".)

A term is a word or several whole words: it counts only if the token after it does not continue its last word.

Shapes: B sentences, K beams, N candidates, M terms, L tokens of the longest term, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch.nn.functional import one_hot

from vanilla_transformer.models.beam_search import MostProbable, Rules, _best_continuations


Term = Sequence[int]


class LexicalConstraints(MostProbable):
    """Keeps the most probable continuations of each bank.

    Args:
        terms: The token ids of the terms of each sentence.
        continues_word: Marks the tokens that continue the word before them [V]; without it none do.
    """

    ranks_by_logits = False  # the continuations of several terms are compared

    def __init__(self, terms: Sequence[Sequence[Term]], continues_word: torch.Tensor | None = None):
        number, length = max(map(len, terms)), max((len(term) for row in terms for term in row), default=1)
        self.terms = torch.full((len(terms), max(number, 1), length + 1), -1)  # [B, M, L + 1], padded
        for row, sentence_terms in enumerate(terms):
            for column, term in enumerate(sentence_terms):
                self.terms[row, column, : len(term)] = torch.tensor(term)
        self.lengths = (self.terms >= 0).sum(-1)  # [B, M], 0 for padding
        self.continues_word = continues_word

    def start(self, prefix: torch.Tensor, rules: Rules) -> None:
        super().start(prefix, rules)
        self.terms, self.lengths = self.terms.to(prefix.device), self.lengths.to(prefix.device)
        if self.continues_word is not None:
            self.continues_word = self.continues_word.to(prefix.device)
        # Tokens of each term that a hypothesis ends with; one more than its length after the word has ended too.
        self.progress = torch.zeros(len(prefix), 1, self.terms.shape[1], dtype=torch.long, device=prefix.device)
        for token in prefix.unbind(1):
            self.progress = self._advanced(self.progress, token[:, None])

    def keep(self, sentences: torch.Tensor) -> None:
        self.terms, self.lengths = self.terms[sentences], self.lengths[sentences]
        self.progress = self.progress[sentences]

    # --- what a hypothesis has of its terms ---

    def _advanced(self, progress: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The progress [B, N, M] of hypotheses after their next tokens [B, N]."""
        lengths = self.lengths[:, None]  # [B, 1, M]
        terms = self.terms[:, None].expand(-1, tokens.shape[1], -1, -1)  # [B, N, M, L + 1]
        wanted = terms.gather(-1, progress.clamp(max=terms.shape[-1] - 1)[..., None]).squeeze(-1)
        token = tokens[..., None]
        advanced = torch.where(token == wanted, progress + 1, (token == terms[..., 0]).long())
        # A complete term stays complete, unless this token continues its last word.
        is_complete, is_closed = progress == lengths, progress > lengths
        continues = is_complete & self._continues(tokens)[..., None]
        return torch.where(is_closed | is_complete & ~continues, lengths + 1, torch.where(continues, 0, advanced))

    def _continues(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.continues_word is None:
            return torch.zeros_like(tokens, dtype=torch.bool)
        return self.continues_word[tokens]

    def _met(self, progress: torch.Tensor) -> torch.Tensor:
        """How many tokens of the terms the hypotheses have: the bank [B, N] that each belongs to."""
        return torch.minimum(progress, self.lengths[:, None]).sum(-1)

    # --- candidates ---

    def continuations(
        self, log_probabilities: torch.Tensor, totals: torch.Tensor, at_limit: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        needed = self.lengths.sum(-1, keepdim=True)  # [B, 1]
        unmet = self._met(self.progress) < needed  # [B, K]
        if self.rules.end is not None:
            for end in self.rules.end.tolist():
                log_probabilities[..., end] = log_probabilities[..., end].masked_fill(unmet, -torch.inf)
        totals, origins, tokens = self._candidates(log_probabilities, totals)
        progress = self._advanced(_gather(self.progress, origins), tokens)
        # A hypothesis that is cut off at the length limit must have its terms too.
        totals = totals.masked_fill(at_limit[:, None] & (self._met(progress) < needed), -torch.inf)
        totals, order = totals.sort(dim=-1, descending=True)
        self.candidates = _gather(progress, order)
        order_in_banks = self._by_banks(totals)
        self.candidates = _gather(self.candidates, order_in_banks)
        order = order.gather(1, order_in_banks)
        return totals.gather(1, order_in_banks), origins.gather(1, order), tokens.gather(1, order)

    def next_beam(self, totals: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sorted_totals, order = totals.sort(dim=-1, descending=True, stable=True)
        self.candidates = _gather(self.candidates, order)
        best = self._by_banks(sorted_totals)[:, : self.rules.beams].sort(dim=-1).values  # again by probability
        self.progress = _gather(self.candidates, best)
        return sorted_totals.gather(1, best), order.gather(1, best)

    def _candidates(
        self, log_probabilities: torch.Tensor, totals: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The most probable continuations; then the best one of each hypothesis and those that advance a term."""
        likely = _best_continuations(log_probabilities, totals, self.rules.candidates)
        beams = log_probabilities.shape[1]
        terms = self.terms[:, None].expand(-1, beams, -1, -1)
        wanted = terms.gather(-1, self.progress.clamp(max=terms.shape[-1] - 1)[..., None]).squeeze(-1)  # [B, K, M]
        tokens = torch.cat([log_probabilities.argmax(-1, keepdim=True), wanted], dim=-1)  # [B, K, 1 + M]
        added = log_probabilities.gather(-1, tokens.clamp(min=0)) + totals[..., None]
        added = added.masked_fill((tokens < 0) | _repeats(tokens), -torch.inf).flatten(1)
        origins = torch.arange(beams, device=tokens.device)[:, None].expand_as(tokens[0]).flatten().expand_as(added)
        tokens = tokens.clamp(min=0).flatten(1)
        is_known = (origins[:, :, None] == likely[1][:, None]) & (tokens[:, :, None] == likely[2][:, None])
        added = added.masked_fill(is_known.any(-1), -torch.inf)
        return tuple(torch.cat(parts, dim=1) for parts in zip(likely, (added, origins, tokens), strict=True))

    def _by_banks(self, totals: torch.Tensor) -> torch.Tensor:
        """Indices of candidates, most probable first, in a new order: first the share of each bank, then the rest."""
        banks = self._met(self.candidates)  # [B, N]
        needed = self.lengths.sum(-1, keepdim=True)
        possible = torch.isfinite(totals)
        members = one_hot(banks, int(needed.max()) + 1) * possible[..., None]
        rank = (members.cumsum(1) * members).sum(-1)  # from 1 on, within the bank
        size, rest = self.rules.beams // (needed + 1), self.rules.beams % (needed + 1)
        share = size + torch.where(banks == needed, rest, 0)  # the last bank gets what is left over
        # With fewer beams than banks, the best hypothesis of the highest bank stays, so that the terms are completed.
        highest = banks.masked_fill(~possible, -1).amax(-1, keepdim=True)
        share = torch.maximum(share, (banks == highest).long())
        return ((rank <= share) & possible).int().sort(dim=-1, descending=True, stable=True).indices


def _gather(progress: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Selects rows of [B, N, M] by indices [B, n]."""
    return progress.gather(1, indices[..., None].expand(-1, -1, progress.shape[-1]))


def _repeats(tokens: torch.Tensor) -> torch.Tensor:
    """Marks tokens in the last dimension that are equal to one before them."""
    same = tokens[..., :, None] == tokens[..., None, :]
    return same.tril(-1).any(-1)
