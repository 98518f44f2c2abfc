// Every word the page shows, in both languages.
const WORDS = {
  en: {
    live: "Live", lost: "Connection lost since {0}; what you see is old", denied: "A token is needed",
    token: "Token", sign_in: "Sign in", fresh_title: "Is everything fresh?", total: "Repositories",
    fresh: "Fresh", worst: "Longest unverified", polls: "Polls per second", queued: "Syncs waiting",
    disk: "Disk free", running_title: "Syncing now", nothing_running: "Nothing is being synced right now.",
    wrong_title: "What is wrong?", nothing_wrong: "Nothing.", waiting: "host is waiting until {0}",
    stormy: "host has failures of its own", host_repos: "{0} repositories", repos_title: "Repositories",
    search: "Search", more: "More", none_found: "None found.", verified: "verified {0}", never: "not verified yet",
    s_pending: "pending", s_active: "active", s_failing: "failing", s_gone: "gone", s_auth: "access refused",
    s_held: "held back", s_inactive: "inactive", no_clones: "Disk nearly full: no new clones are started.",
    ago: "{0} ago", span_s: "{0} s", span_m: "{0} min", span_h: "{0} h", span_d: "{0} d", received: "{0} received",
  },
  zh: {
    live: "实时", lost: "自 {0} 起连接中断，所示为旧数据", denied: "需要令牌",
    token: "令牌", sign_in: "登录", fresh_title: "一切都是最新的吗？", total: "仓库",
    fresh: "最新", worst: "最久未核对", polls: "每秒轮询", queued: "等待同步",
    disk: "磁盘剩余", running_title: "正在同步", nothing_running: "当前没有正在同步的仓库。",
    wrong_title: "有什么问题？", nothing_wrong: "没有问题。", waiting: "主机要求等待至 {0}",
    stormy: "主机自身故障", host_repos: "{0} 个仓库", repos_title: "仓库列表",
    search: "搜索", more: "更多", none_found: "没有找到。", verified: "{0}核对", never: "尚未核对",
    s_pending: "等待中", s_active: "正常", s_failing: "失败", s_gone: "上游已消失", s_auth: "访问被拒",
    s_held: "已暂缓", s_inactive: "停用", no_clones: "磁盘将满：不再开始新的克隆。",
    ago: "{0}前", span_s: "{0} 秒", span_m: "{0} 分钟", span_h: "{0} 小时", span_d: "{0} 天", received: "已接收 {0}",
  },
};

const lang = document.documentElement.lang === "zh" ? "zh" : "en";

export function word(name, value) {
  const text = WORDS[lang][name] ?? name;
  return value === undefined ? text : text.replace("{0}", () => value);
}

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return word("span_s", s);
  if (s < 5400) return word("span_m", Math.round(s / 60));
  if (s < 129600) return word("span_h", Math.round(s / 3600));
  return word("span_d", Math.round(s / 86400));
}

export const ago = (seconds) => word("ago", span(seconds));

export function clock(iso) {
  return new Date(iso).toLocaleTimeString(lang);
}

export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let n = bytes, i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1000; i += 1; }
  return `${n < 10 && i ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}
