# atta for Nix: `nix run github:atta-llm/atta -- run -p "Once upon a time"`. It is built from source, with the Rust of
# nixpkgs, which must be 1.95 or newer.
#
# NEVER RUN so far: written where there was no Nix, which is why there is no flake.lock either.
{
  description = "Runs large language models from GGUF files, straight from disk, in little memory";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ];
      each = build: nixpkgs.lib.genAttrs systems (system: build nixpkgs.legacyPackages.${system});
      workspace = (nixpkgs.lib.importTOML ./Cargo.toml).workspace.package;
    in
    {
      packages = each (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "atta";
          inherit (workspace) version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          cargoBuildFlags = [
            "--package=atta"
            "--bin=atta"
          ];
          # The tests want browsers, terminals and loopback.
          doCheck = false;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          postInstall = ''
            $out/bin/atta man man
            installManPage man/*.1
            for shell in bash fish zsh; do
              $out/bin/atta completions $shell >atta.$shell
              installShellCompletion --$shell atta.$shell
            done
          '';
          meta = {
            inherit (workspace) description;
            homepage = workspace.repository;
            license = with pkgs.lib.licenses; [
              mit
              asl20
            ];
            mainProgram = "atta";
          };
        };
      });
    };
}
