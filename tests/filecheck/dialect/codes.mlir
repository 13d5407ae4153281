// RUN: xdsl-opt %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

// CHECK-LABEL: @main
func.func @main(%x: tensor<?x3xf32>, %u: tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>) -> (tensor<?x1xf32>, tensor<?x2xf32>) {
  %w = pebble.constant dense<[[1.0, -255.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[-7.0, 1000.0]> : tensor<2xf32>
  %m = pebble.constant dense<[0.5, 0.25]> : tensor<2xf32>
  %v = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<[1]> : tensor<1xi64> values dense<[4.0]> : tensor<1xf32> : tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>
  %n = pebble.constant dense<0.125> : tensor<1xf32>
  // CHECK: %q = pebble.convert %x : (tensor<?x3xf32>) -> tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>
  %q = pebble.convert %x : (tensor<?x3xf32>) -> tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>
  // CHECK-NEXT: %h = pebble.linear %q, %w bias %b times %m : tensor<2xf32> activation <relu> : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<s8 scale 9.999999747378752e-06 zero -128>>
  %h = pebble.linear %q, %w bias %b times %m : tensor<2xf32> activation <relu> : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<s8 scale 9.999999747378752e-06 zero -128>>
  // CHECK-NEXT: %y = pebble.linear %h, %v times %n : tensor<1xf32> : (tensor<?x2x!pebble.codes<s8 scale 9.999999747378752e-06 zero -128>>, tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<?x1xf32>
  %y = pebble.linear %h, %v times %n : tensor<1xf32> : (tensor<?x2x!pebble.codes<s8 scale 9.999999747378752e-06 zero -128>>, tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<?x1xf32>
  // CHECK-NEXT: pebble.convert %h : (tensor<?x2x!pebble.codes<s8 scale 9.999999747378752e-06 zero -128>>) -> tensor<?x2xf32>
  %f = pebble.convert %h : (tensor<?x2x!pebble.codes<s8 scale 9.999999747378752e-06 zero -128>>) -> tensor<?x2xf32>
  // CHECK-NEXT: pebble.linear %u, %w bias %b times %m : tensor<2xf32> kernel <byte_lookup from 1, byte_quads from 33, "dense"> :
  %z = pebble.linear %u, %w bias %b times %m : tensor<2xf32> kernel <byte_lookup from 1, byte_quads from 33, "dense"> : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %g = pebble.constant dense<[0.5, -0.25]> : tensor<2xf32>
  // CHECK: pebble.linear %x, %w bias %g times %m : tensor<2xf32> precision "u8" :
  %d = pebble.linear %x, %w bias %g times %m : tensor<2xf32> precision "u8" : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y, %z : tensor<?x1xf32>, tensor<?x2xf32>
}
