"""The dumb twin of core/hooks/trust.py: it keeps every event of every repo, and looks through all of them."""

TOLERANCE = 120.0


class TwinRepo:
    def __init__(self):
        self.trust, self.told, self.missed, self.needed = "unproven", 0, 0, 5
        self.since = self.refs = 0
        self.hooks = []  # times of those that told nothing yet
        self.looks = []  # times of those that succeeded since the start
        self.open = []  # (found_at, until, by, whether it is the first thing since a start)
        self.told_total = self.missed_total = self.received = 0
        self.latest = float("-inf")
        self.looks_at_hook = 0  # how many looks there were when it came
        self.hooked = True  # since the start


class Twin:
    def __init__(self):
        self.repos, self.effects, self.start = {}, [], float("-inf")
        self.missing, self.doubted = {}, set()  # by host

    def hook(self, key, at):
        repo = self.repos.setdefault(key, TwinRepo())
        self.missing[key.split("/")[0]] = set()
        repo.hooks.append(at)
        repo.latest, repo.received, repo.hooked = max(repo.latest, at), repo.received + 1, True
        repo.looks_at_hook = len(repo.looks)
        for change in list(repo.open):
            if at <= change[0] + TOLERANCE:
                repo.open.remove(change)
                self.tell(key, repo, at)

    def looked(self, key, at, refs=0):
        repo = self.repos.get(key)
        if repo is not None:
            repo.looks.append(at)
            repo.refs = refs or repo.refs

    def changed(self, key, found_at, by, now, refs=0):
        repo = self.repos.get(key)
        if repo is None:
            return
        found_at = min(found_at, now)
        known, earlier = repo.refs, list(repo.looks)
        self.looked(key, found_at, refs)
        if refs and refs == known:
            return
        around = abs(repo.latest - found_at) <= TOLERANCE
        since_hook = [at for at in earlier[repo.looks_at_hook :] if at >= repo.latest]
        late = repo.hooks and not since_hook and repo.latest <= found_at
        if by == "hook" or around or late:
            if repo.hooks:
                repo.open.clear()
                self.tell(key, repo, now)
        elif repo.latest <= found_at and not repo.open:
            first = not repo.hooked and not [at for at in earlier if at >= self.start]
            repo.open.append((found_at, now + TOLERANCE, by, first))

    def tick(self, now):
        due = [(repo.open[0][1], key) for key, repo in self.repos.items() if repo.open]
        for until, key in sorted(due, key=lambda d: d[0]):
            if now >= until:
                _, _, by, first = self.repos[key].open.pop()
                if by == "poll":
                    self.miss(key, self.repos[key], now, first)
        for host in self.doubted:
            for key in reversed(self.repos):
                if key.startswith(host + "/") and self.repos[key].trust == "reliable":
                    self.repos[key].trust, self.repos[key].since = "unproven", now
                    self.effects.append(("doubted", key))
        self.doubted.clear()

    def tell(self, key, repo, now):
        repo.hooks.clear()
        repo.told, repo.missed, repo.told_total = repo.told + 1, 0, repo.told_total + 1
        if repo.trust == "silent" and repo.told >= 2:
            repo.trust = "unproven"
            self.effects.append(("heard", key))
        if repo.trust == "unproven" and repo.told >= repo.needed:
            repo.trust, repo.since = "reliable", now
            self.effects.append(("reliable", key))

    def miss(self, key, repo, now, first):
        if first and repo.told > 0:
            repo.told = 0
            return
        host = key.split("/")[0]
        before = len(self.missing.setdefault(host, set()))
        self.missing[host].add(key)
        if before < 3 <= len(self.missing[host]):
            self.doubted.add(host)
        repo.told, repo.missed, repo.missed_total = 0, repo.missed + 1, repo.missed_total + 1
        if repo.trust == "reliable":
            needed, months = repo.needed, (now - repo.since) // (30 * 86400)
            while months > 0 and needed > 5:
                needed, months = needed // 2, months - 1
            repo.trust, repo.since, repo.needed = "unproven", now, min(40, needed * 2)
            self.effects.append(("relapsed", key))
        if repo.trust == "unproven" and repo.missed >= 2:
            repo.trust = "silent"
            self.effects.append(("silent", key))

    def restart(self, now):
        self.missing.clear()
        self.start = now
        for repo in self.repos.values():
            repo.hooks.clear()
            repo.open.clear()
            repo.looks.clear()
            repo.hooked, repo.refs, repo.looks_at_hook = False, 0, 0
