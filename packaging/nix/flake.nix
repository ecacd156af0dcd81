{
  description = "carrack moves big data sets between storage systems";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "carrack";
          version = "0.1.0";
          src = ../..;
          cargoLock.lockFile = ../../Cargo.lock;
          cargoBuildFlags = [ "--package" "carrack" "--no-default-features" ];
          nativeBuildInputs = [ pkgs.cmake ];
          # They want sshd, FUSE and root.
          doCheck = false;
          meta = {
            description = "Moves big data sets between storage systems";
            license = with pkgs.lib.licenses; [ asl20 mit ];
            mainProgram = "carrack";
          };
        };
      });
    };
}
