"""The placement's dumb twin: the same rules over lists and dicts, one repo at a time.

It takes the bounds as given (they have a test of their own) and shares nothing else with what it checks.
"""

from evermirror.core.fleet.copies import NOBODY, Reason

UNCHANGED = 255


class Twin:
    def __init__(self, wishes, ring, sites, bounds_of):
        self.wishes, self.sites = wishes, sites
        self.points = list(zip(ring.at.tolist(), ring.owner.tolist(), strict=True))
        self.positions = wishes.positions.tolist()
        self.replicas = wishes.replicas.tolist()
        self.trusted_only = wishes.trusted_only.tolist()
        self.width = wishes.should.shape[1]
        self.rows = [list(row) for row in wishes.should.tolist()]
        self.cause = [[None] * self.width for _ in self.rows]
        self.held = set(zip(wishes.held_row.tolist(), wishes.held_worker.tolist(), strict=True))
        self.barred = {(i, w) for i, workers in wishes.barred.items() for w in workers}
        self.pinned = set()
        self.members = [w for w in range(len(sites.member)) if sites.member[w]]
        self.bounds_of = bounds_of

    # Facts

    def load(self, worker, ranks=None):
        elsewhere = 0 if self.sites.elsewhere is None else int(self.sites.elsewhere[worker])
        return elsewhere * (ranks is None) + sum(worker in row[:ranks] for row in self.rows)

    def capacity(self, worker):
        return int(self.sites.capacity[worker])

    def takes(self, worker):
        return worker in self.members and bool(self.sites.takes[worker])

    def may_hold(self, i, worker):
        return worker in self.members and (bool(self.sites.trusted[worker]) or not self.trusted_only[i])

    def is_out(self, i, worker):
        return worker in self.rows[i] or (i, worker) in self.barred

    def walk(self, i):
        """(distance, owner) of every point, clockwise."""
        return sorted(((at - self.positions[i]) % 2**64, owner) for at, owner in self.points)

    def far(self, i, worker):
        place = self.positions[i] >> 16
        return min(
            (((at >> 16) - place) % 2**48 for at, owner in self.points if owner == worker), default=2**48
        )

    def homes(self, i):
        owners = dict.fromkeys(w for _, w in self.walk(i) if self.may_hold(i, w))
        return list(owners)[: self.replicas[i]]

    def holes(self, i):
        return [k for k in range(self.replicas[i]) if self.rows[i][k] == NOBODY]

    # The steps

    def place(self):
        self.clear()
        self.pin()
        self.level, self.placing, self.most = self.bounds_of(self)
        self.leavers = {}
        if self.wishes.joined and any(self.trusted_only):
            special = [i for i, t in enumerate(self.trusted_only) if t]
            self.keep(special)
            for k, alike in self.walks(special):
                self.fill_within(k, alike)
        self.claim()
        self.shed()
        self.keep(range(len(self.rows)))
        self.fill()
        return self.rows, [self.reasons(i) for i in range(len(self.rows))]

    def clear(self):
        for i, row in enumerate(self.rows):
            for k, worker in enumerate(row):
                if worker != NOBODY and not self.may_hold(i, worker):
                    row[k] = NOBODY
                    self.cause[i][k] = None if worker in self.members else Reason.LOST
            if any(w != NOBODY for w in row[self.replicas[i] :]):
                seats = sorted(zip(row, self.cause[i], strict=True), key=lambda seat: seat[0] == NOBODY)
                seats = seats[: self.replicas[i]] + [(NOBODY, None)] * (self.width - self.replicas[i])
                self.rows[i], self.cause[i] = (list(x) for x in zip(*seats, strict=True))

    def pin(self):
        for i in sorted(self.wishes.pins, key=lambda i: self.positions[i]):
            row = self.rows[i]
            named = [w for w in dict.fromkeys(self.wishes.pins[i]) if w in row or self.can_pin(i, w)]
            named = named[: self.replicas[i]]
            self.pinned |= {(i, w) for w in named}
            if row[: len(named)] != named:
                lost = [c for w, c in zip(row, self.cause[i], strict=True) if w == NOBODY]
                after = named + [w for w in row if w not in [*named, NOBODY]]
                after = after[: self.replicas[i]]
                lost = lost[: self.replicas[i] - len(after)]
                self.rows[i] = (after + [NOBODY] * self.width)[: self.width]
                self.cause[i] = [Reason.PINNED] * len(named) + [None] * (len(after) - len(named)) + lost
                self.cause[i] = (self.cause[i] + [None] * self.width)[: self.width]

    def can_pin(self, i, worker):
        takes = self.takes(worker) or (worker in self.members and (i, worker) in self.held)
        fits = takes and self.may_hold(i, worker) and (i, worker) not in self.barred
        return fits and self.load(worker) < self.capacity(worker)

    def claim(self):
        quota = {}
        for w in {w for w in self.wishes.joined if self.takes(w)}:
            quota[w] = min(self.placing[w], int(self.level[w])) - self.load(w)
        quota = {w: q for w, q in quota.items() if q > 0}
        claims = {}
        for i in range(len(self.rows)):
            if self.holes(i):
                continue
            homes, found = self.homes(i), []
            for w in quota:
                order = {(1, 1): 0, (1, 0): 1, (0, 1): 2}.get(((i, w) in self.held, w in homes))
                if order is not None and self.may_hold(i, w) and not self.is_out(i, w):
                    found.append((order, self.far(i, w), w))
            if found:
                claims[i] = sorted(found)
        while claims:
            self.grant({i: found.pop(0) for i, found in claims.items()}, quota)
            claims = {i: found for i, found in claims.items() if found}

    def grant(self, claims, quota):
        by_victim, asking = {}, []
        for i, (order, far, w) in claims.items():
            can_go = [(self.far(i, v), -k) for k, v in enumerate(self.rows[i]) if self.can_go(i, v, quota)]
            if can_go and (max(can_go)[0] > far or order < 2):
                k = -max(can_go)[1]
                by_victim.setdefault(self.rows[i][k], []).append((order, far, i, w, k))
        for victim, found in by_victim.items():
            share = max(self.level[victim], 1e-9)
            for before, (order, far, i, w, k) in enumerate(sorted(found)):
                left = self.load(victim) / share - before / share
                asking.append((w, order, -left, far, i, k))
        granted = []
        for w in quota:
            mine = sorted(a for a in asking if a[0] == w)[: max(0, quota[w])]
            quota[w] -= len(mine)
            granted += [(i, k, w, order) for _, order, _, _, i, k in mine]
        self.seat_claims(sorted(granted), quota)

    def can_go(self, i, worker, quota):
        return worker != NOBODY and worker not in quota and (i, worker) not in self.pinned

    def seat_claims(self, granted, quota):
        turns = {}
        for i, k, w, _ in granted:
            nearer = [v for v in self.rows[i] if self.can_go(i, v, quota) and self.far(i, v) < self.far(i, w)]
            stays = [v for v in self.rows[i] if v != NOBODY and not self.can_go(i, v, quota)]
            turns[i] = min(k, len(nearer) + len(stays))
        for i, k, _, _ in granted:
            self.rows[i][k] = NOBODY
        share = len(self.rows) / max(1, sum(self.replicas))
        first = {w: -(-self.level[w] * share // 1) - self.load(w, 1) for w in quota}
        for i, k, w, order in sorted(granted, key=lambda claim: self.far(claim[0], claim[2])):
            if turns[i] == 0 and self.width > 1:
                first[w] -= 1
                if first[w] < 0:
                    turns[i] = k
            row, cause, turn = self.rows[i], self.cause[i], turns[i]
            row[k], cause[k] = row[turn], cause[turn]
            row[turn], cause[turn] = w, Reason.KEPT if order < 2 else Reason.JOINED

    def shed(self):
        if self.sites.elsewhere is not None and self.sites.elsewhere.any():
            return
        over = {w: self.load(w) - self.placing[w] for w in self.members if self.load(w) > self.most[w]}
        for w, excess in over.items():
            seats = [(i, row.index(w)) for i, row in enumerate(self.rows) if w in row]
            seats = [seat for seat in seats if (seat[0], w) not in self.pinned]
            seats.sort(key=lambda seat: (self.trusted_only[seat[0]], -self.far(seat[0], w)))
            for i, k in seats[:excess]:
                self.rows[i][k], self.cause[i][k] = NOBODY, Reason.SHED
                self.leavers[i, k] = w
                self.barred.add((i, w))

    def keep(self, which):
        found = {}
        for i, w in self.held:
            if i in which and self.holes(i) and self.takes(w):
                found.setdefault(i, []).append((self.far(i, w), w))
        while found:
            asking = {}
            for i in list(found):
                fit = [c for c in sorted(found[i]) if self.may_hold(i, c[1]) and not self.is_out(i, c[1])]
                if fit and self.holes(i):
                    far, w = fit[0]
                    asking.setdefault(w, []).append((far, i))
                    found[i] = fit[1:]
                else:
                    del found[i]
            for w, who in asking.items():
                for _, i in sorted(who)[: max(0, self.most[w] - self.load(w))]:
                    self.seat(i, self.holes(i)[0], w, Reason.KEPT)

    def seat(self, i, k, worker, reason):
        self.rows[i][k], self.cause[i][k] = worker, reason

    def fill(self):
        for k, alike in self.walks(range(len(self.rows))):
            self.fill_within(k, alike)
            self.stay(k, alike, lambda i, w, free: free > 0)
            self.walk_rank(k, alike, lambda w: self.most[w] - self.load(w))
            self.walk_rank(k, alike, lambda w: self.capacity(w) - self.load(w), Reason.OVERFULL)
            self.stay(k, alike, lambda i, w, free: (i, w) in self.held)

    def walks(self, which):
        kinds = {}
        for i in which:
            kinds.setdefault((not self.trusted_only[i], -self.replicas[i]), []).append(i)
        return [(k, kinds[kind]) for kind in sorted(kinds) for k in range(-kind[1])]

    def fill_within(self, k, alike):
        whole = self.sites.elsewhere is None or not self.sites.elsewhere.any()
        if k < self.width - 1 and whole and any(k in self.holes(i) for i in alike):
            share = sum(min(r, k + 1) for r in self.replicas) / sum(self.replicas)
            within = {w: -int(-(self.placing[w] * share - 1e-6) // 1) for w in self.members}
            self.walk_rank(
                k, alike, lambda w: min(within[w] - self.load(w, k + 1), self.placing[w] - self.load(w))
            )
        self.walk_rank(k, alike, lambda w: self.placing[w] - self.load(w))

    def stay(self, k, alike, may):
        back = {}
        for (i, _), w in self.leavers.items():
            if i in alike and k in self.holes(i):
                back.setdefault(i, []).append((self.far(i, w), w))
        while back:
            firsts = []
            for i, who in back.items():
                who.sort()
                firsts.append((who[0][0], i, who.pop(0)[1]))
            for _, i, w in sorted(firsts):
                if w not in self.rows[i] and may(i, w, self.capacity(w) - self.load(w)):
                    self.seat(i, k, w, None)
            back = {i: who for i, who in back.items() if who and k in self.holes(i)}

    def walk_rank(self, k, alike, room_of, reason=None):
        asking = [i for i in alike if k in self.holes(i)]
        room = {w: room_of(w) for w in self.members} if asking else {}
        while asking:
            lists = {}
            for i in asking:
                for far, w in self.walk(i):
                    if self.takes(w) and room[w] > 0 and self.may_hold(i, w) and not self.is_out(i, w):
                        lists.setdefault(w, []).append((far, i))
                        break
            asking = []
            for w, who in lists.items():
                who.sort()
                for _, i in who[: room[w]]:
                    self.seat(i, k, w, reason or self.cause[i][k] or "walk")
                asking += [i for _, i in who[room[w] :]]
                room[w] -= len(who[: room[w]])

    def reasons(self, i):
        told = []
        for worker, cause in zip(self.rows[i], self.cause[i], strict=True):
            if worker == NOBODY or worker in self.wishes.should[i].tolist():
                told.append(UNCHANGED)
            elif cause == "walk":
                told.append(int(Reason.HOME if worker in self.homes(i) else Reason.NEXT))
            else:
                told.append(int(cause))
        return told
