// RUN: xdsl-opt %s -p pebble-fold-constants --split-input-file | filecheck %s

// A chain of ops on constants is one constant, called what the last result was called.
// CHECK-LABEL: @chain
func.func @chain(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %a = pebble.constant {pebble.values = ["a"]} dense<[1.0, 2.0]> : tensor<2xf32>
  %m = pebble.constant dense<[0.0, 1.0]> : tensor<2xf32>
  %masked = pebble.mul %a, %m {pebble.node = "mask"} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %t = pebble.activate <square> %masked {pebble.node = "sq", pebble.values = ["a2"]} : (tensor<2xf32>) -> tensor<2xf32>
  // CHECK-NEXT: %a2 = pebble.constant {pebble.node = "sq", pebble.values = ["a2"]} dense<[0.000000e+00, 4.000000e+00]>
  // CHECK-NEXT: %y = pebble.add %x, %a2
  %y = pebble.add %x, %t : (tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Every result of an op with several becomes a constant; a sparse operand counts, too.
// CHECK-LABEL: @several
func.func @several() -> (tensor<1x1xf32>, tensor<1x1xf32>) {
  %x = pebble.constant dense<[[1.0, 2.0]]> : tensor<1x2xf32>
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[3.0, 4.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %h = pebble.linear %x, %w : (tensor<1x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<1x2xf32>
  %y, %z = pebble.split %h axis 1 {pebble.values = ["y", "z"]} : (tensor<1x2xf32>) -> (tensor<1x1xf32>, tensor<1x1xf32>)
  // CHECK-NEXT: pebble.constant {pebble.values = ["y"]} dense<3.000000e+00> : tensor<1x1xf32>
  // CHECK-NEXT: pebble.constant {pebble.values = ["z"]} dense<8.000000e+00> : tensor<1x1xf32>
  // CHECK-NEXT: func.return
  func.return %y, %z : tensor<1x1xf32>, tensor<1x1xf32>
}
