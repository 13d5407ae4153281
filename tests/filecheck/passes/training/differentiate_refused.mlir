// RUN: not xdsl-opt %s -p 'pebble-differentiate{loss="hinge"}' 2>&1 | filecheck %s --check-prefix LOSS
// RUN: not xdsl-opt %s -p 'pebble-differentiate{loss="crps"}' 2>&1 | filecheck %s --check-prefix CRPS
// RUN: not xdsl-opt %s -p pebble-differentiate 2>&1 | filecheck %s

// LOSS: pebble-differentiate: expected a loss of mse, cross-entropy, crps, got 'hinge'
// CRPS: pebble-differentiate: expected means and as many deviations for crps, got 3 outputs
// CHECK: pebble-differentiate: expected an op with a derivative, pebble.activate, pebble.add{{.*}}, got node 'Prelu_1': pebble.prelu
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x3xf32> {
  %w = pebble.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %s = pebble.constant dense<[0.5, 1.0, 1.5]> : tensor<3xf32>
  %h = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x3xf32>) -> tensor<?x3xf32>
  %y = pebble.prelu %h, %s {pebble.node = "Prelu_1"} : (tensor<?x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
  func.return %y : tensor<?x3xf32>
}
