"""Stand-ins for forges, written from their documented APIs, with real git repositories behind them.

    with GitLabServer(tmp_path / "gitlab", tls=True) as lab:
        token = lab.add_token("glpat-1")                     # scopes {"api"}; git asks for it as a password
        lab.add_group("devops/tools")                        # parents too
        repo = lab.add_project("devops/tools/core", commits=3)  # an UpstreamRepo
        lab.rename_project("devops/tools/core", "devops/core")
        lab.fault("/projects", status=502, times=1)
        lab.push("devops/core", lambda repo: repo.commit())  # its hooks are sent; see ``hooked``

Every server: ``base_url``, ``ca_file`` (with ``tls``), ``projects``, ``repo(path)``, ``fault`` (see
``faults``), ``requests``. Over ssh too, the same repositories:
``ssh = SshUpstream(tmp_path / "ssh", find_sshd())``, then ``GitLabServer(ssh.root, ssh=ssh)``.
"""
