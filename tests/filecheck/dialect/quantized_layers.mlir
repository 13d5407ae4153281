// RUN: xdsl-opt %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

// CHECK-LABEL: @main
func.func @main(%x: tensor<?x3xf32>, %u: tensor<?x3xui8>) -> (tensor<?x1xf32>, tensor<?x2xf32>) {
  %w = pebble.constant dense<[[1.0, -255.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[-7.0, 1000.0]> : tensor<2xf32>
  %m = pebble.constant dense<[0.5, 0.25]> : tensor<2xf32>
  %v = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<[1]> : tensor<1xi64> values dense<[4.0]> : tensor<1xf32> : tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>
  %c = pebble.constant dense<0.0> : tensor<1xf32>
  %n = pebble.constant dense<0.125> : tensor<1xf32>
  // CHECK: pebble.quantized_layers %x, %w, %b, %m, %v, %c, %n codes [#pebble.codes<u8 scale 0.5 zero 128>, #pebble.codes<s8 scale 9.999999747378752e-06 zero -128>, #pebble.codes<u8 scale 0.25 zero 0>] activations [#pebble.activation<relu>, unit] nodes ["fc1", "fc2"] :
  %y = pebble.quantized_layers %x, %w, %b, %m, %v, %c, %n codes [#pebble.codes<u8 scale 0.5 zero 128>, #pebble.codes<s8 scale 9.999999747378752e-06 zero -128>, #pebble.codes<u8 scale 0.25 zero 0>] activations [#pebble.activation<relu>, unit] nodes ["fc1", "fc2"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  // CHECK: pebble.quantized_layers %x, %w, %b, %m codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] kernel <byte_lookup from 1, byte_quads from 33, "dense"> :
  %z = pebble.quantized_layers %x, %w, %b, %m codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] kernel <byte_lookup from 1, byte_quads from 33, "dense"> : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %f = pebble.constant dense<[0.5, -0.25]> : tensor<2xf32>
  // CHECK: pebble.quantized_layers %x, %w, %f, %m codes [#pebble.codes<dynamic>] activations [unit] nodes ["fc"] :
  %d = pebble.quantized_layers %x, %w, %f, %m codes [#pebble.codes<dynamic>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: (tensor<?x3xui8>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xsi8>
  %s = pebble.quantized_layers %u, %w, %b, %m codes [#pebble.codes<u8 scale 0.5 zero 128>, #pebble.codes<s8 scale 0.5 zero 0>] activations [unit] nodes ["fc"] : (tensor<?x3xui8>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xsi8>
  func.return %y, %z : tensor<?x1xf32>, tensor<?x2xf32>
}
